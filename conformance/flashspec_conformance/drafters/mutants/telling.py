"""Drafters whose proposals are not the law that their tokens were drawn from, or not well formed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Dense, Sampling, Sparse, Stream
from flashspec.drafts import Draft, Drafter, NGram
from flashspec_conformance.drafters.context import VOCAB, ToyContext
from flashspec_conformance.drafters.mutants.zoo import Altered, after, mutant, small
from flashspec_conformance.drafters.proposals import rows


def _declaring(**fields: float) -> Callable[[Draft], Draft]:
    """Says that the tokens were drawn with other sampling parameters."""

    def change(draft: Draft) -> Draft:
        told: Any = draft.proposal
        if float(told.sampling.temperature[0]) == 0:
            return draft
        told = Dense(told.logits, attrs.evolve(told.sampling, **{name: [value] for name, value in fields.items()}))
        return attrs.evolve(draft, proposal=told)

    return change


@mutant("q is returned before top-k, which the tokens were drawn with", "histogram", "stopping")
def q_unfiltered(context: ToyContext, argument: str) -> Drafter:
    """The fault of proposers that return raw logits."""
    return after(small(context), _declaring(top_k=0))


@mutant("q is returned at temperature 1", "histogram")
def q_at_one(context: ToyContext, argument: str) -> Drafter:
    """The request's temperature is left out of the record."""
    return after(small(context), _declaring(temperature=1.0))


@mutant("the most likely tokens are presented as sampled", "histogram")
def argmax_as_sampled(context: ToyContext, argument: str) -> Drafter:
    """A greedy draft with a dense q."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        draft, state = base.propose(state, length, Sampling.of(1, temperature=0.0), stream)
        if not draft.tokens:
            return draft, state
        return attrs.evolve(draft, proposal=Dense(draft.proposal.logits, sampling)), state

    return Altered(small(context), proposing=proposing)


@mutant("probabilities of the wrong place: each row of q is the next one's", "histogram", "stopping", "proposal")
def rows_shifted(context: ToyContext, argument: str) -> Drafter:
    """Rows of q are turned by one id."""

    def change(draft: Draft) -> Draft:
        told: Any = draft.proposal
        turned = np.roll(np.asarray(told.logits), 1, axis=-1)
        return attrs.evolve(draft, proposal=Dense(turned, told.sampling))

    return after(small(context), change)


@mutant("the proposal has a row less than the draft has tokens", "proposal")
def row_missing(context: ToyContext, argument: str) -> Drafter:
    """The last token's law is lost."""

    def change(draft: Draft) -> Draft:
        told: Any = draft.proposal
        return attrs.evolve(draft, proposal=Dense(np.asarray(told.logits)[:, :-1], told.sampling))

    return after(small(context), change)


@mutant("a sparse law that leaves out what is rare does not sum to 1", "proposal")
def sparse_cut(context: ToyContext, argument: str) -> Drafter:
    """The two largest probabilities, not renormalised."""

    def change(draft: Draft) -> Draft:
        laws = rows(draft)
        ids = np.argsort(-laws, axis=1)[:, :2]
        with np.errstate(divide="ignore"):
            logs = np.log(np.take_along_axis(laws, ids, 1))
        return attrs.evolve(draft, proposal=Sparse(ids[None], logs[None]))

    return after(small(context), change)


@mutant("a token of low probability is dropped after it was drawn", "stopping", "histogram")
def drops_unlikely(context: ToyContext, argument: str) -> Drafter:
    """Rule B1 of the selection theorem: what is left is a filtered q."""

    def change(draft: Draft) -> Draft:
        low = [q < 0.3 for q in rows(draft)[np.arange(len(draft.tokens)), list(draft.tokens)]]
        return _first(draft, low.index(True) if any(low) else len(low))

    return after(small(context), change)


def _first(draft: Draft, count: int) -> Draft:
    """The first ``count`` tokens of a dense draft."""
    if not count:
        return Draft((), None)
    told: Any = draft.proposal
    return Draft(draft.tokens[:count], Dense(np.asarray(told.logits)[:, :count], told.sampling))


@mutant("the block is cut where its least likely token is", "stopping")
def cuts_at_the_worst(context: ToyContext, argument: str) -> Drafter:
    """The length is chosen from the tokens of the whole block (rules B2 and B4)."""

    def change(draft: Draft) -> Draft:
        sure = rows(draft)[np.arange(len(draft.tokens)), list(draft.tokens)]
        return draft if len(sure) == 1 else _first(draft, int(sure.argmin()))

    return after(small(context), change)


@mutant("draws twice and keeps the likelier draft", "histogram", "stopping")
def best_of_two(context: ToyContext, argument: str) -> Drafter:
    """Rule B3: the better of two is not from q."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        other = Stream(stream.seed, stream.position, np.asarray(stream.sequence) + np.uint32(1))
        pair: list[tuple[Draft, Any]] = [base.propose(state, length, sampling, s) for s in (stream, other)]
        if not pair[0][0].tokens:
            return pair[0]
        return max(pair, key=lambda drafted: float(rows(drafted[0])[0, drafted[0].tokens[0]]))

    return Altered(small(context), proposing=proposing)


@mutant("proposes a token more than it was asked for", "length")
def one_more(context: ToyContext, argument: str) -> Drafter:
    """The bonus slot is taken for one of its own."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        longer: tuple[Draft, Any] = base.propose(state, length + 1, sampling, stream)
        return longer

    return Altered(small(context), proposing=proposing)


@mutant("ids of a padded vocabulary are proposed", "in-range")
def padded_ids(context: ToyContext, argument: str) -> Drafter:
    """The last id becomes V."""

    def change(draft: Draft) -> Draft:
        return Draft(tuple(VOCAB if token == VOCAB - 1 else token for token in draft.tokens), draft.proposal)

    return after(NGram(), change, free=True)


@mutant("calls itself free and samples", "free")
def sampled_for_free(context: ToyContext, argument: str) -> Drafter:
    """Tokens that are seen before the selection and judged as sampled."""
    return Altered(small(context), free=True)


@mutant("a free draft of one length is not the beginning of a longer one", "free")
def length_decides(context: ToyContext, argument: str) -> Drafter:
    """The loop cuts a long draft and scores another than it would have got."""

    def proposing(base: Any, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        draft, state = base.propose(state, length, sampling, stream)
        return attrs.evolve(draft, tokens=tuple((t + length) % VOCAB for t in draft.tokens)), state

    return Altered(NGram(), free=True, proposing=proposing)


@mutant("its lengths are not in order", "declared")
def lengths_unsorted(context: ToyContext, argument: str) -> Drafter:
    """The longest first."""
    return Altered(NGram(), free=True, lengths=(4, 2, 1))
