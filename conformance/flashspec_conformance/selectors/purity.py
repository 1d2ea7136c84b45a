"""States are values: nothing is changed in place, nothing is remembered elsewhere, JSON carries all of it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from flashspec.contract import OneHot, Sampling, Stream
from flashspec.decoding import Engine, Request, start, step
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft
from flashspec.errors import UnknownName
from flashspec.selectors import Arms, from_json, to_json
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.plain.backend import Plain
from flashspec_conformance.selectors.subject import Subject
from flashspec_conformance.selectors.world import (
    arms_of,
    bits,
    cost_of,
    everything,
    outcome,
    seen,
    taken,
    wander,
)


def select_pure(subject: Subject) -> None:
    """``select`` leaves the state, the context, the costs and the mask as they were."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 40).state
    given = {"context": np.array([0, 3, 0, 0]), "cost": cost_of(arms), "active": everything(arms)}
    before, copies = bits(state), {name: value.copy() for name, value in given.items()}
    for number in range(5):
        taken(selector, state, (5, number), arms, **given)
    require(bits(state) == before, "select changed the state that it was given")
    for name, value in given.items():
        require(np.array_equal(value, copies[name]), f"select changed {name}")


def update_pure(subject: Subject) -> None:
    """``update`` leaves the old state as it was, and shares nothing with it that it changes later."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 40).state
    before, step = bits(state), seen(arms, 4, 3, runs={"ngram": (1, 1, 0)})
    once = selector.update(state, step)
    after = bits(once)
    selector.update(once, seen(arms, 4, 8))
    require(bits(state) == before, "update changed the state that it was given")
    require(bits(once) == after, "a later update changed the state that an earlier one had returned")


def repeatable(subject: Subject) -> None:
    """The same steps give the same arms and the same state, whatever the selector did meanwhile."""
    selector, arms = subject.build(), arms_of()
    first = wander(selector, arms, 60)
    wander(selector, arms, 7, seed=8)
    for again in (wander(selector, arms, 60), wander(subject.build(), arms, 60)):
        require(again.names == first.names, "the same steps took other arms when they were played again")
        require(bits(again.state) == bits(first.state), "the same steps gave another state when played again")


def time_unread(subject: Subject) -> None:
    """The measured seconds of a step change nothing: costs come from the table."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 20).state
    short, long = (selector.update(state, seen(arms, 4, 5, seconds=s)) for s in (1e-3, 7.0))
    require(bits(short) == bits(long), "two steps that differ in their seconds alone gave different states")


def json_bits(subject: Subject) -> None:
    """A state written to JSON and read back has the same bits."""
    selector, arms = subject.build(), arms_of()
    for steps in (0, 60):
        state = wander(selector, arms, steps).state
        text = to_json(selector, state)
        restored = from_json(subject.build(), arms_of(), text)
        require(bits(restored) == bits(state), f"after {steps} steps the restored state differs from the saved one")
        require(to_json(selector, restored) == text, f"after {steps} steps the restored state is saved as other text")


def json_choices(subject: Subject) -> None:
    """A selector restored from JSON goes on with the same choices."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 40).state
    restored = from_json(subject.build(), arms, to_json(selector, state))
    on = wander(selector, arms, 40, begin=40, state=state)
    back = wander(subject.build(), arms, 40, begin=40, state=restored)
    require(back.names == on.names, "the restored selector took other arms than the one that was saved")


@attrs.frozen
class Scripted:
    """A drafter that always proposes the same token, judged as a point mass."""

    token: int
    name: str = "model"
    lengths: tuple[int, ...] = (2, 3)
    free: bool = False

    def start(self, prompt: Any) -> tuple[int, ...]:
        """Nothing to remember."""
        return ()

    def extend(self, state: Any, tokens: Any) -> tuple[int, ...]:
        """Nothing to remember."""
        return ()

    def propose(self, state: Any, length: int, sampling: Sampling, stream: Stream) -> tuple[Draft, Any]:
        """The token, ``length`` times."""
        return Draft((self.token,) * length, OneHot()), state


def predictable(subject: Subject) -> None:
    """In the decoding loop the arm depends on the past alone, never on the tokens of the block it starts."""
    arms = Arms.of({"model": (2, 3)})
    try:
        engines = [
            Engine(
                lm=TableLM.random(vocab=5, seed=2),
                drafters=(Scripted(token),),
                backend=Plain(),
                selector=subject.build(),
                arms=arms,
                cost=np.array([1.0, 1.1, 1.2]),
                decode=lambda ids: " ".join(map(str, ids)),
                clock=lambda: 0.0,
            )
            for token in (0, 3)
        ]
        request = Request((1, 2, 4), 80, temperature=1.3, seed=6)
        state = start(engines[0], request)
    except UnknownName:  # a selector of one named arm
        return
    while state.output.finish_reason is None:
        twins = [step(engine, request, state) for engine in engines]
        chosen = {info.arm for _, info in twins}
        told = f"step {state.step} took arms {sorted(chosen)} for blocks that differ in their tokens"
        require(len(chosen) == 1, told)
        state = twins[state.step % 2][0]


def replayed(subject: Subject) -> None:
    """Learning from recorded steps needs no ``select`` before: ``update`` reads its arguments alone."""
    arms = arms_of()
    states = []
    for ask in (False, True):
        selector = subject.build()
        state = selector.init(arms)
        for number in range(30):
            if ask:
                taken(selector, state, (9, number), arms)
            state = selector.update(state, outcome(arms, number % len(arms), number, 4))
        states.append(bits(state))
    require(states[0] == states[1], "calls of select between the updates changed what was learned")


CHECKS = (
    Check("select-pure", select_pure),
    Check("update-pure", update_pure),
    Check("repeatable", repeatable),
    Check("replayed", replayed),
    Check("predictable", predictable),
    Check("time-unread", time_unread),
    Check("json-bits", json_bits),
    Check("json-choices", json_choices),
)
