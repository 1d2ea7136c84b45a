"""Curves: what a backend does as a function of one integer, everything else held fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import NO_TOKEN, Uniforms
from flashspec_conformance import build
from flashspec_conformance.case import I64, Case, HostVerdict, Request
from flashspec_conformance.law.locate import ProbeFailure
from flashspec_conformance.subject import Subject

COINS, DRAWS = 1 << 32, 1 << 52
"""Integers of an accept coin, and those of the 64-bit sampling integer that clause UNI-2 reads."""
NEVER_ACCEPTS = COINS - 1
SPARE_BITS = 12
_WORD = 1 << 64
CHUNK_BYTES, CHUNK_ROWS = 48 << 20, 2048
"""Logits (as float64 on the host) and requests of one call."""

SAMPLE, COIN, DRAW = "sample", "coin", "draw"


@attrs.frozen(eq=False)
class Curve:
    """One integer of one request: a ``coin`` or a ``draw`` at a place of ``verify``, or the integer of ``sample``.

    Numbers that must have no influence vary with the question: a backend that reads one of them shows
    other steps, or none.
    """

    kind: str
    request: Request
    place: int = 0
    accepted: int = 0
    """Of a draw: how many drafts the coins accept."""
    coins: tuple[range, ...] = ()
    """The values of each coin between which the outcome must not change."""
    fixed: int = 0
    """So many first sampling integers are those of the request."""

    def at(self, argument: int) -> Request:
        """The request with the integer set."""
        noise = _scrambled(argument)
        coins = [values[_scrambled(noise + i) % len(values)] for i, values in enumerate(self.coins)]
        integers = [*self.request.integers[: self.fixed]]
        integers += [_scrambled(noise - j) for j in range(self.fixed, self.request.length)]
        if self.kind == COIN:
            coins[self.place] = argument
        else:
            integers[self.place] = integer(argument)
        return attrs.evolve(self.request, coins=tuple(coins), integers=tuple(integers))


def _scrambled(value: int) -> int:
    """A 64-bit number that looks random (the finaliser of splitmix64)."""
    value = (value + 0x9E3779B97F4A7C15) % _WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % _WORD
    return value ^ (value >> 31)


def integer(k: int) -> int:
    """A 64-bit integer whose upper 52 bits are ``k``; the others vary."""
    return (k << SPARE_BITS) | (_scrambled(k) >> (64 - SPARE_BITS))


@attrs.define(eq=False)
class Asker:
    """Puts questions about curves to a backend, many in one call, and counts."""

    subject: Subject
    method: str
    dtype: str
    curves: Sequence[Curve]
    calls: int = 0
    questions: int = 0

    def __call__(self, curve: I64, argument: I64) -> I64:
        """The values of curves: a drawn token; of a coin 0 if it accepts, 1 if it rejects.

        Raises:
            ProbeFailure: what came back is not an outcome of the request.
        """
        found = [np.zeros(0, np.int64)]
        limit = self._limit()
        for start in range(0, curve.size, limit):
            part = slice(start, start + limit)
            chosen = [self.curves[int(c)] for c in curve[part]]
            requests = [c.at(int(k)) for c, k in zip(chosen, argument[part], strict=True)]
            self.calls += 1
            self.questions += len(requests)
            found.append(self._sample(requests) if self.method == SAMPLE else self._verify(chosen, requests))
        return np.concatenate(found)

    def _limit(self) -> int:
        first = self.curves[0].request
        rows: int = first.length + (0 if first.dense_logits is None else first.dense_logits.shape[0])
        return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * rows * int(first.rows.shape[1]))))

    def _sample(self, requests: list[Request]) -> I64:
        subject, first = self.subject, requests[0]
        logits = subject.put(np.stack([r.rows[0] for r in requests]), self.dtype)
        masks = [r.allowed[0] for r in requests if r.allowed is not None]
        packed = subject.put(build.pack(np.stack(masks)), "int32") if masks else None
        sampling = build.knobs_sampling([r.knobs for r in requests], packed)
        integers = subject.put(np.array([r.integers[0] for r in requests], np.uint64), "uint64")
        drawn = subject.backend.sample(logits, sampling, Uniforms(integers))
        tokens, status = subject.get(drawn.tokens), subject.get(drawn.status)
        if tokens.shape != (len(requests),) or status.shape != tokens.shape:
            raise ProbeFailure(f"tokens have shape {tokens.shape}, status {status.shape}; allowed: {(len(requests),)}")
        _require_tokens(tokens, first.rows.shape[1])
        _require_status(status)
        return tokens.astype(np.int64)

    def _verify(self, chosen: list[Curve], requests: list[Request]) -> I64:
        case = Case(tuple(requests), requests[0].rows.shape[1], self.dtype, method=self.method)
        verdict = build.verify(self.subject, case)
        shape = (len(requests), case.drafts_width + 1)
        if verdict.tokens.shape != shape or verdict.num_accepted.shape != shape[:1]:
            raise ProbeFailure(f"tokens have shape {verdict.tokens.shape}; allowed: {shape}")
        _require_status(verdict.status)
        return np.array([self._read(c, verdict, b) for b, c in enumerate(chosen)], np.int64)

    def _read(self, curve: Curve, verdict: HostVerdict, b: int) -> int:
        tokens, accepted, emitted, _ = verdict.row(b)
        drafts = curve.request.drafts
        if not 0 <= accepted <= len(drafts) or len(tokens) != accepted + 1 or emitted != accepted + 1:
            raise ProbeFailure(f"{accepted} accepted and {emitted} emitted of {len(drafts)} drafts")
        if tokens[:accepted] != drafts[:accepted]:
            raise ProbeFailure(f"tokens {tokens} do not begin with the {accepted} accepted drafts of {drafts}")
        _require_tokens(np.array(tokens), curve.request.rows.shape[1])
        if curve.kind == COIN:
            return self._coin(curve, accepted)
        wanted = accepted >= curve.accepted if self.method == "path" else accepted == curve.accepted
        if not wanted:
            raise ProbeFailure(f"{accepted} of {drafts} accepted where other integers accepted {curve.accepted}")
        return tokens[curve.place]

    def _coin(self, curve: Curve, accepted: int) -> int:
        """The block rule's later coins never accept, the token rule's earlier ones always do."""
        low, high = (0, curve.place + 1) if self.method == "block" else (curve.place, len(curve.request.drafts))
        if not low <= accepted <= high:
            raise ProbeFailure(f"{accepted} drafts accepted while coin {curve.place} moves; allowed: {low} to {high}")
        return int(accepted <= curve.place)


def _require_tokens(tokens: npt.NDArray[Any], vocab: int) -> None:
    bad = tokens[(tokens < 0) | (tokens >= vocab)]
    if bad.size:
        nothing = " (nothing drawn)" if bad[0] == NO_TOKEN else ""
        raise ProbeFailure(f"token {bad[0]}{nothing}; allowed: 0 to {vocab - 1}")


def _require_status(status: npt.NDArray[Any]) -> None:
    bad = status[status != 0]
    if bad.size:
        raise ProbeFailure(f"status {int(bad[0])} on a valid request; allowed: 0")
