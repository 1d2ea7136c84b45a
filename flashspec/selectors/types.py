"""The values that selectors work on: arms, what a choice reports, what a step revealed.

``D`` drafts (draft 0 is "none": plain decoding), ``M`` arms, ``G`` the largest draft length. An arm
is a draft and a length; arm 0 is ``(none, 0)`` and always present. Leading batch dimensions are
allowed in states and in the seed of a key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import ContractError
from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool, on_host
from flashspec.selectors.seen import Seen

F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

Key: TypeAlias = tuple[Any, Any]
"""``(seed, step)``: integers, or integer arrays with the batch dimensions; in a core always arrays."""

State: TypeAlias = Any
"""A frozen attrs value: ``arms`` and arrays, which may have batch dimensions; each algorithm has its own."""

Run: TypeAlias = tuple[int, ...]
"""Outcomes at offsets 1, 2, ... of one draft: 1 accepted, 0 missed."""

NONE = "none"
FREE, SHADOW, OWN = 0, 1, 2
"""Tiers of feedback: scored at every step, scored now and then, seen only when played."""


def _owned(values: Any, dtype: type) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.array(values, dtype)
    array.setflags(write=False)
    return array


def _integers(values: Any) -> I64:
    return _owned(values, np.int64)


def _names(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _numbers(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def floats(values: Iterable[float]) -> tuple[float, ...]:
    """A tuple of floats, as a converter."""
    return tuple(float(value) for value in values)


def _runs(values: Iterable[Run | None]) -> tuple[Run | None, ...]:
    return tuple(values)


def context_buckets(values: Any) -> I64:
    """A read-only ``[D]`` copy of context buckets, checked to be integers >= 0."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim != 1 or min(array.tolist(), default=0) < 0:
        raise ContractError(f"context is {values!r}; allowed: one integer bucket >= 0 per draft, shape (D,)")
    return _integers(array)


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b))


@attrs.frozen
class Arms:
    """What can be chosen: drafts, each with some lengths. Build it with :meth:`of`.

    Raises:
        ContractError: drafts that do not start with "none" or repeat; arms out of order; a length
            outside 1 to 65535; a draft without arms; a tier other than 0, 1, 2.
    """

    drafts: tuple[str, ...] = attrs.field(converter=_names)
    """Names; ``drafts[0]`` is ``"none"``."""
    draft: I64 = attrs.field(converter=_integers, eq=attrs.cmp_using(eq=_same), hash=False)
    """``[M]``: index of each arm's draft, ascending."""
    length: I64 = attrs.field(converter=_integers, eq=attrs.cmp_using(eq=_same), hash=False)
    """``[M]``: tokens that the arm asks for, ascending within a draft; 0 for arm 0."""
    tier: tuple[int, ...] = attrs.field(converter=_numbers)
    """Per draft: 0 counterfactual at every step, 1 scored now and then, 2 own play only."""
    lanes: I64 = attrs.field(init=False, eq=False, repr=False)
    """``[D]``: the noise lane of each draft, a hash of its name, so that order does not matter."""
    longest: int = attrs.field(init=False, eq=False, repr=False)
    """G: the largest length of any arm, at least 1."""
    pool: Pool = attrs.field(init=False, eq=False, repr=False)
    """The same as NumPy arrays for the cores."""

    def __attrs_post_init__(self) -> None:
        _check_drafts(self.drafts, self.tier)
        if self.draft.ndim != 1 or self.draft.shape != self.length.shape:
            shapes = f"{self.draft.shape} and {self.length.shape}"
            raise ContractError(f"draft and length have shapes {shapes}; allowed: one entry per arm in both, (M,)")
        pairs = [(int(d), int(g)) for d, g in zip(self.draft, self.length, strict=True)]
        if not pairs or pairs[0] != (0, 0) or pairs != sorted(set(pairs)):
            raise ContractError(f"arms are {pairs}; allowed: (0, 0) first, then ascending pairs, none twice")
        drafts = {d for d, _ in pairs}
        if drafts != set(range(len(self.drafts))) or any(d < 1 or not 1 <= g < 2**16 for d, g in pairs[1:]):
            raise ContractError(
                f"arms are {pairs} for drafts {', '.join(self.drafts)}; "
                "allowed: lengths 1 to 65535, at least one per draft"
            )
        lanes = _integers([zlib.crc32(name.encode()) for name in self.drafts])
        object.__setattr__(self, "lanes", lanes)
        resting = [tier == OWN for tier in self.tier]
        object.__setattr__(self, "pool", on_host(self.draft, self.length, lanes, resting))
        object.__setattr__(self, "longest", self.pool.longest)

    @classmethod
    def of(cls, lengths: Mapping[str, Sequence[int]], tiers: Mapping[str, int] | None = None) -> Arms:
        """Arms from the lengths of each draft; "none" comes by itself. Unnamed drafts have tier 2.

        >>> Arms.of({"ngram": (1, 4)}, tiers={"ngram": 0}).names
        ('none', 'ngram/1', 'ngram/4')
        """
        tiers = dict(tiers or {})
        unknown = sorted(set(tiers) - set(lengths))
        if unknown:
            known = ", ".join(lengths) or "nothing"
            raise ContractError(f"tiers name {', '.join(unknown)}; allowed: {known}")
        for name, values in lengths.items():
            if list(values) != sorted(set(values)) or not values:
                given = tuple(values)
                raise ContractError(f"lengths of {name} are {given}; allowed: at least one, ascending")
        pairs = [(0, 0)] + [(d, g) for d, name in enumerate(lengths, 1) for g in lengths[name]]
        drafts = (NONE, *lengths)
        draft, length = zip(*pairs, strict=True)
        return cls(drafts, _integers(draft), _integers(length), (FREE, *(tiers.get(name, OWN) for name in lengths)))

    @property
    def names(self) -> tuple[str, ...]:
        """``none``, then ``draft/length`` for each arm."""
        pairs = zip(self.draft[1:], self.length[1:], strict=True)
        return (NONE, *(f"{self.drafts[d]}/{g}" for d, g in pairs))

    def __len__(self) -> int:
        return len(self.draft)


def _check_drafts(drafts: tuple[str, ...], tier: tuple[int, ...]) -> None:
    if not drafts or drafts[0] != NONE or len(set(drafts)) != len(drafts):
        raise ContractError(f"drafts are {drafts}; allowed: {NONE!r} first, no name twice")
    if len(tier) != len(drafts) or any(t not in (FREE, SHADOW, OWN) for t in tier):
        raise ContractError(f"tiers are {tier}; allowed: one of 0, 1, 2 for each of {len(drafts)} drafts")


@attrs.frozen(eq=False)
class Info:
    """What a choice reports besides the arm; it may be thrown away."""

    scores: F64
    """``[M]``: what was maximised; arms that were not active have ``-inf``."""
    context: I64
    """``[D]``: the context bucket of each draft that was used; goes into the observation."""
    propensity: float | None
    """Probability, over keys, of the arm that was taken; None where it has no closed form."""
    scale: F64 | None = None
    """``[M]``: ``choice.speed_range`` of the moment, where the algorithm adds up throughputs; else None.
    Goes into the observation, as the propensity does."""


@attrs.frozen(eq=False)
class Scored:
    """What an earlier step's tokens say about drafts that were scored later than that step."""

    runs: tuple[Run | None, ...] = attrs.field(converter=_runs)
    """Per draft (``[D]``): its hits on the tokens of that step, or None where it was not scored."""
    kept: int
    """Tokens that the step committed, at least 1."""
    context: I64 = attrs.field(converter=context_buckets)
    """``[D]``: contexts at that step."""

    def __attrs_post_init__(self) -> None:
        _check_hits(self.runs)
        if self.kept < 1 or len(self.runs) != len(self.context):
            raise ContractError(
                f"kept {self.kept}, {len(self.runs)} runs, {len(self.context)} contexts; "
                "allowed: kept >= 1, one run and one context per draft"
            )


def _check_hits(runs: tuple[Run | None, ...]) -> None:
    if any(hit not in (0, 1) for run in runs if run is not None for hit in run):
        raise ContractError(f"runs is {runs}; allowed: per draft None or a tuple of 0 and 1")


@attrs.frozen(eq=False)
class Observation:
    """What one step revealed.

    Raises:
        ContractError: counts that cannot be; hits other than 0 and 1; seconds that are negative,
            NaN or infinite; a context that is not integers.
    """

    arm: int
    offered: int
    """Tokens really proposed, at most the arm's length."""
    accepted: int
    """Length of the leading run of accepted drafts, at most ``offered``."""
    kept: int
    """Tokens committed after EOS, stop and budget cuts, at most ``accepted + 1``."""
    runs: tuple[Run | None, ...] = attrs.field(converter=_runs)
    """Per draft (``[D]``): its hits on this step's committed tokens, or None where it was not scored.

    Every committed token may be given; what lies behind the first miss is not read.
    """
    seconds: float
    """Measured time of the step. Rewards use the cost table, never this number (it is for the table)."""
    context: I64 = attrs.field(converter=context_buckets)
    """``[D]``: ``Info.context`` of the choice."""
    propensity: float | None = None
    """``Info.propensity`` of the choice; importance-weighted selectors refuse a step without it."""
    scale: Any = None
    """``Info.scale`` of the choice, ``[M]`` or None, which stands for rewards that are comparable as they are."""
    late: tuple[Scored, ...] = ()
    """Earlier steps on which drafts were scored just now (shadow scoring), oldest first."""

    def __attrs_post_init__(self) -> None:
        if not 0 <= self.accepted <= self.offered or not 0 <= self.kept <= self.accepted + 1 or self.arm < 0:
            raise ContractError(
                f"arm {self.arm}, offered {self.offered}, accepted {self.accepted}, kept {self.kept}; "
                "allowed: arm >= 0, 0 <= accepted <= offered, 0 <= kept <= accepted + 1"
            )
        if not 0 <= self.seconds < np.inf:
            raise ContractError(f"seconds is {self.seconds}; allowed: a finite number >= 0")
        if self.propensity is not None and not 0 < self.propensity <= 1 + 1e-9:
            raise ContractError(f"propensity is {self.propensity}; allowed: a number in (0, 1], or None")
        _check_hits(self.runs)


Scores: TypeAlias = Callable[[State, Key, I64, F64, Bools], F64]
"""``scores(state, key, context, cost, active) -> [..., M]``: the arithmetic of a choice, batched."""


CoreScores: TypeAlias = Callable[[Pool, State, Key, Array, Array, Array], Array]
"""``scores(pool, state, key, context [..., D], cost [..., M], active [..., M]) -> [..., M]``."""


Law: TypeAlias = Callable[[Pool, State, Array], Array]
"""``law(pool, state, active [..., M]) -> [..., M]``: probabilities of arms, 0 for those that are not active."""


@attrs.frozen(eq=False)
class Core:
    """An algorithm on the arrays of any library: fixed shapes, leading batch dimensions, no branch on a value.

    The functions of a :class:`Selector` check one request's values and call the same arithmetic with
    ``state.arms.pool``. States come from ``Selector.init``, ``pool.repeated`` and ``pool.moved``.
    """

    scores: CoreScores
    """What ``choice.best`` takes the largest of."""
    learn: Callable[[Pool, State, Seen], State]
    """``learn(pool, state, seen) -> state``."""
    law: Law | None = None
    """``law(pool, state, active) -> [..., M]``: the chances of arms, for ``Seen.propensity``; None: not needed."""


@attrs.frozen(eq=False)
class Selector:
    """An algorithm as pure functions; its configuration is closed over and listed in ``config``."""

    name: str
    init: Callable[..., State]
    """``init(arms) -> state``; some accept ``prior=`` (see the algorithm)."""
    select: Callable[[State, Key, Any, Any, Any], tuple[int, Info]]
    """``select(state, key, context, cost, active) -> (arm, info)``; never changes the state.

    ``context [D]`` integer buckets; ``cost [M]`` seconds per step of each arm, finite and > 0;
    ``active [M]`` bool, true for arm 0. Raises ContractError, naming what is wrong.
    """
    update: Callable[[State, Observation], State]
    """``update(state, observation) -> state``."""
    scores: Scores
    """What ``select`` maximises (ties: lowest cost, then lowest index)."""
    update_reward: Callable[..., State] | None = None
    """``update_reward(state, arm, x) -> state`` for plain rewards x in [0, 1]; None where meaningless.

    Importance-weighted selectors also take ``propensity``; without it, that of a choice from ``state``
    with every arm active.
    """
    config: Mapping[str, Any] = attrs.field(factory=dict)
    """The options that the selector was built with."""
    update_all: Callable[[State, Any], State] | None = None
    """``update_all(state, x) -> state`` for the plain rewards ``[..., M]`` of every arm; None: learns from one arm."""
    core: Core | None = None
    """The same on arrays of any library; None: on the host only."""
    per_second: bool = False
    """Whether scores are expected tokens over cost, so that a batch can weigh them jointly (``decoding.joint``)."""
