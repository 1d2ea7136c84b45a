"""Faults of the shell: rows, output format, purity, refusals."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.contract import Draw, Layout, Padded, Sample, Sampling, Uniforms, Verdict
from flashspec_conformance.mutants.mutant import Mutant, hooks
from flashspec_conformance.plain import views
from flashspec_conformance.plain.backend import EVERYTHING, Arguments, Plain


def _next_request(logits: Any, layout: Layout, allowed: Any, b: int) -> tuple[Any, Any]:
    count = len(logits) if isinstance(layout, Padded) else len(layout.cu_rows) - 1
    other = (b + 1) % count
    rows, mask = views.target_rows(logits, layout, allowed, b)
    neighbours, _ = views.target_rows(logits, layout, allowed, other)
    return (neighbours, mask) if neighbours.shape == rows.shape else (rows, mask)


def _first_masks(logits: Any, layout: Layout, allowed: Any, b: int) -> tuple[Any, Any]:
    rows, mask = views.target_rows(logits, layout, allowed, b)
    return rows, None if mask is None or not len(mask) else np.repeat(allowed[:1], len(mask), axis=0)


def _packed(arguments: Arguments) -> Arguments:
    """Rows read as if they lay one after the other in memory."""
    logits = arguments[0]
    if logits.flags.c_contiguous or logits.base is None:
        return arguments
    memory = logits.base.reshape(-1)
    return (memory[: logits.size].reshape(logits.shape), *arguments[1:])


def _rows_counted_by_width(arguments: Arguments) -> Arguments:
    """Ragged bounds recomputed as if every request owned at least one row."""
    layout = arguments[3]
    if isinstance(layout, Padded) or not len(layout.cu_rows[1:]):
        return arguments
    steps = np.maximum(np.diff(layout.cu_rows), 1)
    bounds = np.minimum(np.concatenate([[0], np.cumsum(steps)]), len(arguments[0]))
    bounds[-1] = len(arguments[0])
    return (*arguments[:3], attrs.evolve(layout, cu_rows=bounds.astype(layout.cu_rows.dtype)), *arguments[4:])


def _ragged_reversed(logits: Any, layout: Layout, allowed: Any, b: int) -> tuple[Any, Any]:
    rows, mask = views.target_rows(logits, layout, allowed, b)
    return (rows, mask) if isinstance(layout, Padded) else (rows[::-1], mask)


def _in_place(verdict: Verdict, arguments: Arguments) -> Verdict:
    arguments[0][np.isneginf(arguments[0])] = -1e4
    return verdict


def _drafts_in_place(verdict: Verdict, arguments: Arguments) -> Verdict:
    arguments[1][arguments[1] < 0] = 0
    return verdict


def _zero_padding(verdict: Verdict, arguments: Arguments) -> Verdict:
    return attrs.evolve(verdict, tokens=np.maximum(verdict.tokens, 0))


def _counts_with_the_bonus(verdict: Verdict, arguments: Arguments) -> Verdict:
    return attrs.evolve(verdict, num_accepted=verdict.num_emitted)


def _without_rows_emits(verdict: Verdict, arguments: Arguments) -> Verdict:
    empty = verdict.num_emitted + verdict.status == 0
    tokens = verdict.tokens.copy()
    tokens[empty, 0] = 0
    return attrs.evolve(verdict, tokens=tokens, num_emitted=np.where(empty, 1, verdict.num_emitted))


@attrs.frozen(eq=False)
class Forgetless(Plain):
    """Remembers how often it was called and turns its tokens after the first time."""

    calls: list[int] = attrs.field(factory=list)

    def verify(self, *arguments: Any) -> Verdict:
        """The right verdict, once."""
        verdict = super().verify(*arguments)
        self.calls.append(1)
        turned = np.where(verdict.tokens > 0, verdict.tokens - 1, verdict.tokens)
        return attrs.evolve(verdict, tokens=verdict.tokens if len(self.calls) % 2 else turned)

    def sample(self, logits: Any, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """The right sample with a logprob that depends on the past."""
        sample = super().sample(logits, sampling, randomness)
        self.calls.append(1)
        return attrs.evolve(sample, logprobs=sample.logprobs - len(self.calls))


@attrs.frozen(eq=False)
class Sharing(Plain):
    """Its records are views of the caller's logits."""

    def sample(self, logits: Any, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """The right sample, not copied."""
        sample = super().sample(logits, sampling, randomness)
        return attrs.evolve(sample, proposal=attrs.evolve(sample.proposal, logits=logits[:, None, :]))


NO_FILTERS = attrs.evolve(EVERYTHING, filters=frozenset({"top_p"}))

MUTANTS = (
    hooks(
        "rows_of_the_next_request",
        "request b reads the rows of request b + 1",
        "LAY-1",
        "OUT-1",
        "RNG-4",
        rows=_next_request,
    ),
    hooks("ragged_rows_reversed", "ragged rows are read backwards", "LAY-1", rows=_ragged_reversed),
    hooks("first_mask_for_all", "every target row has the first row's mask", "FLT-5", rows=_first_masks),
    hooks("contiguous_assumed", "the row stride is taken to be V", "LAY-4", enter=_packed),
    hooks(
        "empty_requests_take_a_row",
        "a request without rows takes its neighbour's",
        "LAY-3",
        enter=_rows_counted_by_width,
    ),
    hooks("empty_requests_emit", "a request without rows emits token 0", "LAY-3", finish=_without_rows_emits),
    hooks("padding_is_zero", "places without a token hold 0", "OUT-1", finish=_zero_padding),
    hooks(
        "bonus_counted_as_accepted",
        "num_accepted counts the last token",
        "OUT-1",
        "ACC-3",
        finish=_counts_with_the_bonus,
    ),
    hooks("logits_changed_in_place", "-inf logits are overwritten", "PUR-1", finish=_in_place),
    hooks("drafts_changed_in_place", "missing drafts are overwritten", "PUR-1", finish=_drafts_in_place),
    Mutant(
        "record_shares_memory",
        "sample's record is a view of its input",
        Sharing(name="record_shares_memory"),
        ("PUR-1",),
    ),
    Mutant("remembers_calls", "a result depends on earlier calls", Forgetless(name="remembers_calls"), ("PUR-2",)),
    hooks(
        "undeclared_accepted",
        "filters that are not declared are applied anyway",
        "CAP-1",
        capabilities=NO_FILTERS,
        check=False,
    ),
    hooks("malformed_accepted", "calls are not checked", "CAP-2", "CAP-1", check=False),
)
