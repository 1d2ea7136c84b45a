"""From scores to an arm: validation, ties, and the shape that every ``select`` has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.arrays import NUMPY, Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import (
    F64,
    I64,
    Arms,
    Bools,
    CoreScores,
    Info,
    Key,
    Observation,
    Scores,
    State,
    context_buckets,
)

Propensity = Callable[[State, Bools, int], float | None]
"""``propensity(state, active, arm)``: the probability, over keys, of the arm that was taken."""
Select = Callable[[State, Key, Any, Any, Any], tuple[int, Info]]
Options = TypeVar("Options")


def options(kind: type[Options], name: str, given: Mapping[str, Any]) -> Options:
    """The constants of selector ``name``, or the error that lists the options it has."""
    known = list(inspect.signature(kind).parameters)
    strange = sorted(set(given) - set(known))
    if strange:
        raise ContractError(f"selector {name} has no option {strange[0]}; allowed: {', '.join(known)}")
    return kind(**given)


def certain(state: State, active: Bools, arm: int) -> float | None:
    """The propensity of a choice that does not depend on the key."""
    return 1.0


def unknown(state: State, active: Bools, arm: int) -> float | None:
    """The propensity of a Thompson choice: an integral without closed form."""
    return None


def best(xp: Arrays, scores: Array, cost: Array, active: Array) -> Array:
    """``[...]``: the active arm of the largest score; ties go to the lowest cost, then the lowest index."""
    return largest(xp, xp.where(active, scores, -np.inf), cost, active)


def largest(xp: Arrays, masked: Array, cost: Array, active: Array) -> Array:
    """The same for scores that are ``-inf`` where an arm is not active."""
    tied = (masked == xp.max(masked, -1)[..., None]) & active
    return xp.argmin(xp.where(tied, cost, np.inf), -1)


def first(masked: F64, cost: F64, active: Bools) -> int:
    """:func:`largest` for one request, in less time where no two scores are equal."""
    listed = masked.tolist()
    top = max(listed)
    return listed.index(top) if listed.count(top) == 1 else int(largest(NUMPY, masked, cost, active))


def pick(scores: F64, cost: F64, active: Bools) -> I64:
    """:func:`best` on NumPy."""
    return np.asarray(best(NUMPY, scores, cost, active))


def speed_range(pool: Pool, cost: Array, active: Array) -> Array:
    """``[..., M]``: the throughput of an arm that keeps all its tokens, as a share of the largest such one.

    A reward x in [0, 1] is tokens per second over the largest possible over active arms: this factor
    times the share of its own largest number of tokens (``length + 1``) that the arm brought.
    """
    top = pool.most / cost
    most = pool.xp.max(pool.xp.where(active, top, 0.0), -1)
    return pool.xp.minimum(top / most[..., None], 1.0)


def share_kept(arms: Arms, seen: Observation) -> float | None:
    """Tokens kept over the most that the arm can bring; None for a step cut by EOS, stop or budget.

    A cut step is censored: its missing tokens are not the draft's failure, so it is not counted.
    """
    if seen.kept < seen.accepted + 1:
        return None
    return seen.kept / float(arms.length[seen.arm] + 1)


def on_host(scores: CoreScores) -> Scores:
    """``Selector.scores`` from ``Core.scores``."""

    def of_state(state: State, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        seed, step = key
        return np.asarray(scores(state.arms.pool, state, (np.asarray(seed), np.asarray(step)), context, cost, active))

    return of_state


def select_by(scores: Scores, propensity: Propensity, *, scaled: bool = False) -> Select:
    """The ``select`` of an algorithm, from what it maximises; ``scaled`` reports ``Info.scale``."""

    def select(state: State, key: Key, context: Any, cost: Any, active: Any) -> tuple[int, Info]:
        arms: Arms = state.arms
        check_key(key)
        cost, active = check_cost(arms, cost), check_active(arms, active)
        context = check_context(arms, context)
        value = np.where(active, scores(state, key, context, cost, active), -np.inf)
        arm = first(value, cost, active)
        scale = speed_range(arms.pool, cost, active) if scaled else None
        return arm, Info(value, context, propensity(state, active, arm), scale)

    return select


def check_key(key: Key) -> None:
    """Refuse a key that is not one seed and one step in the range of a Philox key and counter word."""
    seed, step = key
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64 or not 0 <= step < 2**32:
        raise ContractError(f"key is {key}; allowed: integers (seed, step), seed below 2**64, step below 2**32")


def check_cost(arms: Arms, cost: Any) -> F64:
    """``[M]`` seconds per step, or the error that names the arm whose cost cannot be."""
    values = np.asarray(cost, np.float64)
    if values.shape != (len(arms),):
        raise ContractError(f"cost has shape {values.shape}; allowed: one per arm, shape ({len(arms)},)")
    listed = values.tolist()
    if not (min(listed) > 0 and max(listed) < np.inf and sum(listed) > 0):  # a NaN shows in the sum
        bad = int((~((values > 0) & (values < np.inf))).argmax())
        raise ContractError(
            f"cost of {arms.names[bad]} is {values[bad]}; allowed: finite seconds per step > 0, measured"
        )
    return values


def check_active(arms: Arms, active: Any) -> Bools:
    """``[M]`` bool with arm 0 true."""
    values = np.asarray(active)
    if values.dtype != np.bool_ or values.shape != (len(arms),):
        raise ContractError(
            f"active has dtype {values.dtype} and shape {values.shape}; allowed: bool, shape ({len(arms)},)"
        )
    if not values[0]:
        raise ContractError("active leaves out arm 0 (none); allowed: always with it, set active[0] to true")
    return values


def check_context(arms: Arms, context: Any) -> I64:
    """``[D]`` integer buckets."""
    values = context_buckets(context)
    if len(values) != len(arms.drafts):
        raise ContractError(f"context has shape {values.shape}; allowed: one per draft, ({len(arms.drafts)},)")
    return values


def check_seen(arms: Arms, seen: Observation) -> None:
    """Refuse an observation that belongs to other arms."""
    if seen.arm >= len(arms) or seen.offered > arms.length[seen.arm]:
        raise ContractError(
            f"arm {seen.arm} offered {seen.offered} tokens; allowed: {len(arms)} arms, each at most its length"
        )
    if len(seen.runs) != len(arms.drafts) or len(seen.context) != len(arms.drafts):
        raise ContractError(
            f"{len(seen.runs)} runs and {len(seen.context)} contexts; allowed: one each for {len(arms.drafts)} drafts"
        )
    strange = [len(late.runs) for late in seen.late if len(late.runs) != len(arms.drafts)]
    if strange:
        raise ContractError(f"late scores of {strange[0]} drafts; allowed: one run each for {len(arms.drafts)} drafts")


def check_scale(arms: Arms, seen: Observation) -> F64:
    """``[M]``: the scale of rewards at the choice; ones for rewards that are comparable as they are."""
    if seen.scale is None:
        return np.ones(len(arms))
    scale = np.asarray(seen.scale, np.float64)
    if scale.shape != (len(arms),) or not ((scale > 0) & (scale <= 1)).all():
        raise ContractError(f"scale is {seen.scale}; allowed: one number in (0, 1] per arm, as Info.scale gave it")
    return scale


def check_rewards(arms: Arms, x: Any) -> F64:
    """``[..., M]`` plain rewards of every arm, or the error for one outside [0, 1]."""
    values = np.asarray(x, np.float64)
    if values.shape[-1:] != (len(arms),) or not ((values >= 0) & (values <= 1)).all():
        raise ContractError(f"rewards are {values}; allowed: numbers in [0, 1], one per arm ({len(arms)})")
    return values


def check_reward(arms: Arms, arm: Any, x: Any) -> tuple[I64, F64]:
    """Arms and plain rewards as arrays, or the error for a reward outside [0, 1]."""
    arm, x = np.asarray(arm), np.asarray(x, np.float64)
    if not ((x >= 0) & (x <= 1)).all():
        raise ContractError(f"reward is {x}; allowed: numbers in [0, 1]")
    if not ((arm >= 0) & (arm < len(arms))).all():
        raise ContractError(f"arm is {arm}; allowed: 0 to {len(arms) - 1}")
    return arm, x
