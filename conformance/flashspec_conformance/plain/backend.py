"""The plain verifier behind the contract: gathers requests, judges each, packs the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from flashspec import rng
from flashspec.checks import check_sample, check_verify
from flashspec.contract import (
    Capabilities,
    Dense,
    Draw,
    Layout,
    Proposal,
    RowStats,
    Sample,
    Sampling,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import CapabilityError
from flashspec_conformance.case import F64
from flashspec_conformance.plain import views
from flashspec_conformance.plain.judge import Judge
from flashspec_conformance.plain.rules import DRAFT, Law, Rules
from flashspec_conformance.plain.views import Draws, Outcome, View
from flashspec_conformance.subject import FILTERS, METHODS, PROPOSALS

Arguments: TypeAlias = tuple[Any, Any, Any, Any, Any, Any]
"""What ``verify`` is given, in its order, without the method."""

EVERYTHING = Capabilities(
    frozenset(METHODS),
    frozenset({"float16", "float32", "float64"}),
    frozenset(PROPOSALS),
    frozenset(FILTERS),
    frozenset({"cpu"}),
)


@attrs.frozen(eq=False)
class Plain:
    """A conformant backend unless a rule, a hook or the capabilities are exchanged."""

    judge: Judge = Judge()
    name: str = "plain"
    capabilities: Capabilities = EVERYTHING
    numbers: Callable[[Stream | Uniforms, int], Draws] = views.numbers
    rows: Callable[[F64, Layout, Any, int], tuple[F64, Any]] = views.target_rows
    q_row: Callable[[Rules, Proposal, int, int], views.QRow] = views.proposal_row
    enter: Callable[[Arguments], Arguments] = lambda arguments: arguments
    """Called with the arguments of ``verify`` first; returns those that are used."""
    finish: Callable[[Verdict, Arguments], Verdict] = lambda verdict, arguments: verdict
    """Called with the verdict and the arguments of ``verify`` before it returns."""
    record: Callable[[Sample], Sample] = lambda sample: sample
    """Called with every sample before it returns."""
    check: bool = True
    """Whether calls are checked at the border."""

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> npt.NDArray[Any]:
        """A rounded copy of the values."""
        known = self.capabilities.dtypes | {"int32", "int64", "uint32", "uint64"}
        if dtype not in known or device not in self.capabilities.devices:
            raise CapabilityError(f"{dtype} on {device} is not declared; declared: {', '.join(sorted(known))} on cpu")
        return np.array(values).astype(dtype)

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """A copy on the host."""
        return np.array(array)

    def sample(self, logits: Any, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """Draw one token per row and record its law."""
        if self.check:
            check_sample(self.capabilities, logits, sampling, randomness)
        rows = logits.astype(np.float64)
        integers = randomness.sampling if isinstance(randomness, Uniforms) else rng.draw_bits(randomness)
        masks = None if sampling.allowed is None else views.unpack(sampling.allowed, rows.shape[1])
        drawn = [self._draw(rows[b], sampling, masks, b, int(integers[b])) for b in range(rows.shape[0])]
        return self.record(_sample(logits, sampling, drawn))

    def _draw(self, row: F64, sampling: Sampling, masks: Any, b: int, integer: int) -> tuple[int, float, Law]:
        rules = self.judge.rules
        own, allowed = views.knobs(sampling, b), None if masks is None else masks[b]
        if own.temperature == 0:
            law = _greedy_law(rules, row, allowed)
            return -1 if law.status else int(law.order[0]), 0.0, law
        law = rules.law(rules, row, allowed, own, DRAFT)
        if law.status:
            return -1, 0.0, law
        token = rules.choose(law.weights, rules.draw_uniform(integer))
        return token, rules.log_probability(law, token), law

    def verify(
        self,
        target_logits: Any,
        draft_tokens: Any,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str = "token",
    ) -> Verdict:
        """Judge every request."""
        arguments = self.enter((target_logits, draft_tokens, proposal, layout, sampling, randomness))
        if self.check:
            check_verify(self.capabilities, *arguments, method)
        batch, width = arguments[1].shape
        draws = self.numbers(arguments[5], width)
        outcomes = [self.judge(self.view(b, draws, *arguments), method) for b in range(batch)]
        return self.finish(_verdict(outcomes, width), arguments)

    def view(
        self,
        b: int,
        draws: Draws,
        logits: Any,
        drafts: Any,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Any,
    ) -> View:
        """Request ``b`` of a call."""
        rows, words = self.rows(logits, layout, sampling.allowed, b)
        vocab = logits.shape[-1]
        own = tuple(int(x) for x in drafts[b, : max(rows.shape[0] - 1, 0)])
        return View(
            rows.astype(np.float64),
            None if words is None else views.unpack(words, vocab),
            own,
            views.knobs(sampling, b),
            self.q_row(self.judge.rules, proposal, b, vocab),
            draws.of(b),
        )

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join one-step proposals along the draft axis."""
        first = proposals[0]
        stats = [p.stats for p in proposals if p.stats is not None]
        largest, mass, cut, last = (np.concatenate(c, axis=1) for c in zip(*map(_columns, stats), strict=True))
        allowed = first.sampling.allowed
        if allowed is not None:
            words = np.stack([np.asarray(p.sampling.allowed) for p in proposals], axis=1)
            allowed = words.reshape(-1, words.shape[-1])
        logits = np.concatenate([p.logits for p in proposals], axis=1)
        return Dense(logits, attrs.evolve(first.sampling, allowed=allowed), RowStats(largest, mass, cut, last))


def _columns(stats: RowStats) -> tuple[Any, ...]:
    return stats.max, stats.mass, stats.cut_logit, stats.cut_id


def _greedy_law(rules: Rules, row: F64, allowed: Any) -> Law:
    masked = rules.allow(row, allowed)
    status = rules.row_status(row, masked)
    chosen = np.zeros(0, np.int64) if status else np.array([rules.greedy(masked)])
    weights = np.zeros_like(row)
    weights[chosen] = 1.0
    return Law(status, weights, masked, chosen)


def _sample(logits: Any, sampling: Sampling, drawn: list[tuple[int, float, Law]]) -> Sample:
    cuts = [int(law.order[-1]) if law.order.size else 0 for *_, law in drawn]
    largest = [float(law.logits.max()) for *_, law in drawn]
    lowest = [float(law.logits[cut]) for cut, (*_, law) in zip(cuts, drawn, strict=True)]
    masses = [law.mass for *_, law in drawn]
    top, mass, cut = (np.array(c, np.float64).reshape(-1, 1) for c in (largest, masses, lowest))
    stats = RowStats(top, mass, cut, np.array(cuts, np.int64).reshape(-1, 1))
    allowed = None if sampling.allowed is None else sampling.allowed.copy()
    return Sample(
        np.array([token for token, _, _ in drawn], np.int64),
        Dense(logits[:, None, :].copy(), attrs.evolve(sampling, allowed=allowed), stats),
        np.array([logprob for _, logprob, _ in drawn], np.float64),
        np.array([int(law.status) for *_, law in drawn], np.int64),
    )


def _verdict(outcomes: list[Outcome], width: int) -> Verdict:
    tokens = np.full((len(outcomes), width + 1), -1, np.int64)
    logprobs = np.zeros((len(outcomes), width + 1))
    for b, o in enumerate(outcomes):
        tokens[b, : len(o.tokens)] = o.tokens
        logprobs[b, : len(o.logprobs)] = o.logprobs
    accepted = np.array([o.accepted for o in outcomes], np.int64)
    emitted = np.array([len(o.tokens) for o in outcomes], np.int64)
    status = np.array([int(o.status) for o in outcomes], np.int64)
    return Verdict(tokens, accepted, emitted, status, logprobs)


backend = Plain()
