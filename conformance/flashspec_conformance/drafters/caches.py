"""What a drafter remembers after every event of decoding is the committed text, neither more nor less."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.contract import OneHot, Padded, Sampling, Stream
from flashspec.drafts import Draft, Drafter, Past, Scorer
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.drafters.context import DRAFT_MAX, VOCAB, ToyContext, toy
from flashspec_conformance.drafters.shape import SAMPLINGS, ask, same, text_of
from flashspec_conformance.drafters.subject import Subject


@attrs.frozen(eq=False)
class Request:
    """One request as a drafter sees it."""

    context: ToyContext
    drafter: Drafter
    text: tuple[int, ...]
    state: Any
    sampling: Sampling

    def commit(self, tokens: Sequence[int]) -> Request:
        """The target committed some tokens."""
        state = self.drafter.extend(self.state, list(tokens))
        return attrs.evolve(self, text=(*self.text, *tokens), state=state)

    def draft(self, length: int) -> tuple[Draft, Request]:
        """The drafter was chosen."""
        draft, state = ask(self.drafter, self.state, self.text, length, self.sampling)
        return draft, attrs.evolve(self, state=state)


Event = Callable[[Request], Request]


def begin(subject: Subject, size: int, sampling: Sampling) -> Request:
    """A request with a prompt of ``size`` tokens."""
    context, text = toy(), text_of(size)
    drafter = subject.build(context)
    return Request(context, drafter, tuple(text), drafter.start(text), sampling)


def after(subject: Subject, what: str, *events: Event, sizes: Sequence[int] = (1, 6, 40)) -> None:
    """After the events, twice over, the next draft is that of a drafter that was started with the whole text.

    A drafter that drafts with the target is accepted in full as well, at once and in the round after it.
    """
    for size in sizes:
        for sampling in SAMPLINGS:
            request = begin(subject, size, sampling)
            for event in (*events, *events):
                request = event(request)
                told = f"after {what}, {len(request.text)} tokens in all"
                fresh = subject.make()
                clean, _ = ask(fresh, fresh.start(list(request.text)), request.text, DRAFT_MAX, sampling)
                draft, drafted = request.draft(DRAFT_MAX)
                same(draft, clean, f"{told}: the draft differs from that of a fresh start")
                request = _judged(subject, drafted, draft, told)


def _judged(subject: Subject, request: Request, draft: Draft, told: str) -> Request:
    """The request after the target judged the draft; with a drafter that is the target, all of it is accepted."""
    lm, backend, size = request.context.lm, request.context.backend, len(draft.tokens)
    logits, _ = lm.forward(lm.start(), (*request.text, *draft.tokens), size + 1)
    drafts = backend.asarray(np.array([draft.tokens], np.int64).reshape(1, size), "int64")
    law = OneHot() if draft.proposal is None else draft.proposal
    stream = Stream.of([1], [len(request.text)])
    verdict = backend.verify(logits, drafts, law, Padded(), request.sampling, stream, "token")
    accepted = int(backend.to_numpy(verdict.num_accepted)[0])
    if subject.equal:
        require(size == DRAFT_MAX, f"{told}: a drafter that is the target proposed {size} of {DRAFT_MAX} tokens")
        require(accepted == size, f"{told}: {accepted} of {size} tokens of a draft equal to the target were accepted")
    return request.commit([int(t) for t in backend.to_numpy(verdict.tokens)[0] if t >= 0])


def rejected_at(place: int) -> Event:
    """The draft was right up to ``place``, where another token was committed."""

    def event(request: Request) -> Request:
        draft, request = request.draft(DRAFT_MAX)
        right = draft.tokens[:place]
        wrong = draft.tokens[place] if place < len(draft.tokens) else 0
        return request.commit([*right, (wrong + 1) % VOCAB])

    return event


def accepted(request: Request) -> Request:
    """The whole draft and one more token were committed."""
    draft, request = request.draft(DRAFT_MAX)
    return request.commit([*draft.tokens, 2])


def idle(*tokens: int) -> Event:
    """Another arm was played: the tokens are told, nothing is asked."""
    return lambda request: request.commit(tokens)


def cut(kept: int) -> Event:
    """All was accepted, but EOS or the budget kept only ``kept`` of the draft's own tokens."""

    def event(request: Request) -> Request:
        draft, request = request.draft(DRAFT_MAX)
        return request.commit(draft.tokens[:kept] or (1,))

    return event


def short(length: int) -> Event:
    """A round of another length, accepted in full."""

    def event(request: Request) -> Request:
        draft, request = request.draft(length)
        return request.commit([*draft.tokens, 5])

    return event


def after_start(subject: Subject) -> None:
    """From the first round on, prompts of 1 to 300 tokens included, rounds follow each other without a seam."""
    after(subject, "nothing but whole rounds", lambda request: request, sizes=(1, 2, 3, 4, 33, 300))


def after_rejection(subject: Subject) -> None:
    """After a rejection at any place the draft is that of a fresh start."""
    for place in range(DRAFT_MAX):
        after(subject, f"a rejection at place {place}", rejected_at(place))


def after_acceptance(subject: Subject) -> None:
    """After a draft was accepted whole, with the bonus token, the draft is that of a fresh start."""
    after(subject, "a full acceptance", accepted)


def after_idle(subject: Subject) -> None:
    """After rounds in which other arms were played, one token or many at a time, nothing is missing."""
    after(subject, "an idle round of one token", idle(4))
    after(subject, "idle rounds of 1, 5 and 2 tokens", idle(3), idle(0, 1, 2, 3, 4), idle(6, 6))
    after(subject, "a rejection, then two idle rounds", rejected_at(1), idle(2), idle(5, 1))


def after_cut(subject: Subject) -> None:
    """After EOS or the budget kept only a part of an accepted draft, the draft is that of a fresh start."""
    for kept in (1, 2, 3, 4):
        after(subject, f"a draft of which {kept} tokens were kept", cut(kept))


def after_switch(subject: Subject) -> None:
    """After changes of length from round to round the draft is that of a fresh start."""
    after(subject, "rounds of 1, 3 and 2 tokens", short(1), short(3), short(2), idle(1), short(4))


IDLE = ((3,), (0, 1, 2), (6, 6, 6, 6), (4, 5))
"""Rounds that others played."""


def scored(request: Request) -> Request:
    """Rounds that others played, and a score of them, if the drafter declares that it gives scores."""
    for tokens in IDLE:
        request = request.commit(tokens)
    if not isinstance(request.drafter, Scorer):
        return request
    steps = [Past(tokens, (0,) * len(tokens)) for tokens in IDLE]
    runs, state = request.drafter.score(request.state, steps, request.sampling)
    require(len(runs) == len(IDLE), f"it gave {len(runs)} runs for {len(IDLE)} steps; allowed: one each, or None")
    if float(np.asarray(request.sampling.temperature)[0]) == 0:
        _right(request, runs)
    return attrs.evolve(request, state=state)


def _right(request: Request, runs: Sequence[tuple[int, ...] | None]) -> None:
    """Greedy runs are those of the drafts that a fresh start gives along the text."""
    text = list(request.text[: -sum(len(tokens) for tokens in IDLE)])
    for tokens, run in zip(IDLE, runs, strict=True):
        told: list[int] = []
        for token in tokens:
            draft, _ = ask(request.drafter, request.drafter.start(list(text)), text, 1, request.sampling)
            told += [] if 0 in told else [int(tuple(draft.tokens) == (token,))]
            text.append(token)
        require(run is None or tuple(run) == tuple(told), f"after {len(text)} tokens its run is {run}, really {told}")


def after_score(subject: Subject) -> None:
    """Greedy scores of rounds that others played are right, and after a score the draft is that of a fresh start."""
    after(subject, "rounds of others and their score", scored)
    after(subject, "a rejection, rounds of others and their score", rejected_at(1), scored)


CHECKS = (
    Check("after-start", after_start),
    Check("after-rejection", after_rejection),
    Check("after-acceptance", after_acceptance),
    Check("after-idle", after_idle),
    Check("after-cut", after_cut),
    Check("after-switch", after_switch),
    Check("after-score", after_score),
)
