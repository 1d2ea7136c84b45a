"""What the prompt says about free drafts, before the first step.

Each free draft decodes the end of the prompt: it proposes, its run is read off the prompt, and it goes
on behind what the step would have emitted, so that its windows begin where its own steps would.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from flashspec.contract import Sampling, Stream
from flashspec.decoding.drafting import Lost, attempt
from flashspec.drafts.protocol import Drafter
from flashspec.selectors.types import Arms, Run, Selector, State

WINDOW = 256
"""Tokens at the end of the prompt that are read."""


def takes_prior(selector: Selector) -> bool:
    """Whether the selector can start from runs that were scored beforehand."""
    return "prior" in inspect.signature(selector.init).parameters


def init(selector: Selector, arms: Arms, drafters: Sequence[Drafter], prompt: Sequence[int]) -> State:
    """The selector's first state, from what the prompt says if it takes that, with the weight that it gives it."""
    found = prior(drafters, prompt) if prompt and takes_prior(selector) else {}
    return selector.init(arms, prior=found) if found else selector.init(arms)


def prior(drafters: Sequence[Drafter], prompt: Sequence[int]) -> dict[str, list[tuple[int, Run]]]:
    """By name of each free draft, ``(context, run)`` of its steps over the end of the prompt.

    A draft that fails on the prompt is left out; it is dealt with when it fails on the text.
    """
    found = {d.name: attempt(walk, d, tuple(prompt)) for d in drafters if d.free}
    return {name: runs for name, runs in found.items() if not isinstance(runs, Lost)}


def walk(drafter: Drafter, prompt: tuple[int, ...]) -> list[tuple[int, Run]]:
    """The steps of a free draft over the last :data:`WINDOW` tokens, without those where it had none."""
    unused = (Sampling.of(1), Stream.of([0], [0]))
    at = max(1, len(prompt) - WINDOW)
    state, longest, steps = drafter.start(prompt[:at]), max(drafter.lengths), []
    while at < len(prompt):
        draft, state = drafter.propose(state, longest, *unused)
        run = hits(draft.tokens, prompt[at:])
        if run:
            steps.append((draft.context, run))
        moved = prompt[at : at + sum(run) + 1]
        state, at = drafter.extend(state, moved), at + len(moved)
    return steps


def hits(proposed: Sequence[int], text: Sequence[int]) -> Run:
    """1 for every proposed token that the text has, up to the first that it has not, a 0."""
    run: list[int] = []
    for token, real in zip(proposed, text, strict=False):
        run.append(int(token == real))
        if token != real:
            break
    return tuple(run)
