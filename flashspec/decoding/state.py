"""The values of a decoding step: the engine, what is carried, what was offered and judged, what is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np

from flashspec.contract import Backend, Sampling, Stream
from flashspec.decoding.commit import Output
from flashspec.decoding.cost import CostTable
from flashspec.decoding.lm import CausalLM
from flashspec.decoding.logprobs import TokenLogprobs
from flashspec.decoding.memory import Judge, ran_out
from flashspec.decoding.processing import States, Window
from flashspec.decoding.rows import HostRows, Rows
from flashspec.decoding.shadow import Unscored
from flashspec.decoding.text import Decode
from flashspec.decoding.timings import Timings
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.selectors.types import Arms, Selector
from flashspec.selectors.types import Info as Choice


@attrs.frozen(eq=False)
class Engine:
    """Everything that does not change while a request runs."""

    lm: CausalLM
    drafters: tuple[Drafter, ...]
    backend: Backend
    selector: Selector
    arms: Arms
    cost: np.ndarray
    """Seconds per step of every arm, ``[M]``."""
    decode: Decode
    clock: Callable[[], float]
    method: str = "token"
    """The acceptance rule: ``token``, ``block`` or ``path`` (see ``decoding.method``)."""
    table: CostTable | None = None
    """What ``cost`` was computed from, to be kept fresh by the steps that are made (see ``decoding.timings``); None:
    the costs stay as they are."""
    shadow: int = 0
    """Every so many steps the drafts that can be are scored on what was emitted (see ``decoding.shadow``); 0: never."""
    warm: bool = False
    """Whether the selector starts from what the prompt says about free drafts (see ``decoding.warmstart``)."""
    ran_out: Judge = ran_out
    """Which errors say that memory ran out: the step is done again with less (see ``decoding.memory``)."""
    rows: Rows = attrs.field(
        default=attrs.Factory(lambda self: HostRows(self.backend, self.lm.device), takes_self=True)
    )
    """How processors and log-probabilities reach the logits."""


@attrs.frozen(eq=False)
class State:
    """What is carried from step to step."""

    tokens: tuple[int, ...]
    """Prompt and committed tokens."""
    cache: Any
    """The target's cache: after a step it holds all of ``tokens`` but the last."""
    drafts: tuple[Any, ...]
    """The drafters' states; ``drafting.Lost`` in place of one that failed."""
    selector: Any
    output: Output = Output()
    step: int = 0
    unscored: tuple[Unscored, ...] = ()
    """Steps since drafts were last scored."""
    timings: Timings | None = None
    """What steps took of late; None where costs stay as they are."""
    cost: np.ndarray | None = None
    """Costs from ``timings``, ``[M]``; None: the engine's."""
    settings: States = ()
    """One a processor of the request."""
    most: int | None = None
    """The longest draft that there was memory for, once it ran out; None: it did not."""


@attrs.frozen(eq=False)
class Info:
    """What one step did."""

    arm: int
    draft: str
    offered: int
    accepted: int
    kept: int
    """Tokens committed; less than ``accepted + 1`` where EOS, stop or budget cut the step."""
    tokens: tuple[int, ...]
    seconds: float
    status: int
    context: tuple[int, ...]
    scores: tuple[float, ...]
    selector_seconds: float = 0.0
    """Of ``seconds`` and what follows them: choosing and learning."""
    shadow_seconds: Mapping[str, float] = attrs.field(factory=dict)
    """By draft: scoring it on earlier steps, after ``seconds``."""
    best: Mapping[str, float] = attrs.field(factory=dict)
    """By draft that could be played: the score of its best arm."""
    lost: Mapping[str, str] = attrs.field(factory=dict)
    """By draft that failed in this request so far: why."""
    phases: Mapping[str, float] = attrs.field(factory=dict)
    """Seconds by name of ``step.PHASES``; empty in a batch, whose phases are its own."""
    shortage: str = ""
    """Why the step was done again with fewer tokens at a time: memory ran out. Empty: it did not; in a batch always."""

    @property
    def drafted(self) -> int:
        """Draft tokens counted in the statistics: those offered up to the cut."""
        return self.offered if self.kept > self.accepted else self.kept

    @property
    def accepted_kept(self) -> int:
        """Accepted tokens that were committed."""
        return min(self.accepted, self.kept)


@attrs.frozen(eq=False)
class Chosen:
    """What a request would play, before anything is drafted but what costs nothing."""

    stream: Stream
    sampling: Sampling
    free: Mapping[int, Draft]
    context: np.ndarray
    arm: int
    chosen: Choice
    held: tuple[Any, ...]
    """The drafters' states."""
    expected: np.ndarray | None = None
    """Tokens of the step by arm, ``[M]``, minus infinity where it cannot be played; None where the selector does
    not say."""
    selector_seconds: float = 0.0


@attrs.frozen(eq=False)
class Offer:
    """What was chosen and drafted, before the target has read it."""

    stream: Stream
    sampling: Sampling
    free: Mapping[int, Draft]
    context: np.ndarray
    arm: int
    chosen: Choice
    draft: Draft
    held: tuple[Any, ...]
    """The drafters' states."""
    selector_seconds: float = 0.0
    drafting_seconds: float = 0.0


@attrs.frozen(eq=False)
class Judged:
    """The target's verdict on one draft."""

    emitted: tuple[int, ...]
    accepted: int
    status: int
    logprobs: tuple[float, ...] = ()
    """Of the emitted tokens under the target's law, natural logs; without them sampled drafts are not scored later."""
    seconds: float | None = None
    """Of the target's forward, the verification and the rollback; None: not measured for this request alone."""
    window: Window = Window()
    """How the rows were processed."""
    told: tuple[TokenLogprobs, ...] = ()
    """What the request asked to know about the emitted tokens, one each or none."""
