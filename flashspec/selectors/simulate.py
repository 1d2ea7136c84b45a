"""Experiments: plain Bernoulli rewards with all seeds in one array, and decoding of synthetic texts.

Both run the arithmetic that the decoding loop runs: a selector's own ``scores``, ``select`` and updates.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.choice import pick
from flashspec.selectors.course import AT_ONCE, Feedback, Learn, Played, by_update, follow
from flashspec.selectors.environments import Text, World
from flashspec.selectors.plain import SEED, Rates
from flashspec.selectors.pool import repeated
from flashspec.selectors.types import F64, I64, Arms, Selector

SEED_RATES = SEED.phases[0]
SEED_STEPS = 10_000
POINTS = 60
"""Points of a regret curve."""


def plain_arms(count: int) -> tuple[Arms, F64]:
    """Arms for ``count`` plain rewards, and the cost table that makes their rewards comparable as they are.

    Arm 0 is one of them. A cost of ``length + 1`` gives every arm the same largest throughput, so that
    the share of it is the reward itself.
    """
    arms = Arms.of({f"arm{k}": (1,) for k in range(1, count)})
    return arms, (arms.length + 1).astype(np.float64)


@attrs.frozen(eq=False)
class Curve:
    """Regret over time."""

    step: I64
    """``[P]``: steps done at each point, ascending."""
    lost: F64
    """``[P, N]``: pseudo-regret of each seed so far."""
    share: F64
    """``[P, K]``: how often each arm was taken since the point before, over all seeds."""


def regret(
    selector: Selector, seeds: Sequence[int], rates: Sequence[float] = SEED_RATES, steps: int = SEED_STEPS
) -> F64:
    """``[len(seeds)]``: pseudo-regret of each seed, the sum over steps of best rate minus the rate played.

    A seed decides both its rewards (NumPy's PCG64, one uniform per step) and the selector's key.

    Raises:
        ContractError: no rate, a rate outside [0, 1], or a selector without plain rewards.
    """
    return np.asarray(regret_curve(selector, seeds, Rates((tuple(rates),)), steps).lost[-1])


def regret_curve(selector: Selector, seeds: Sequence[int], rates: Rates, steps: int = SEED_STEPS) -> Curve:
    """Regret of each seed against taking the best arm of every step.

    A selector with ``update_all`` is told the reward of every arm (one uniform per arm and step).

    Raises:
        ContractError: no seed, no step, or a selector without plain rewards.
    """
    if selector.update_reward is None:
        raise ContractError(f"selector {selector.name} takes no plain rewards; ucb1, thompson do")
    if not len(seeds) or steps < 1:
        raise ContractError(f"{len(seeds)} seeds and {steps} steps; allowed: at least one of each")
    arms, cost = plain_arms(rates.arms)
    chances, keys = rates.chances(seeds, steps), np.array(seeds, np.uint64)
    each = rates.arms if selector.update_all is not None else 1
    draws = np.stack([np.random.default_rng(int(seed)).random((steps, each)) for seed in seeds], 1)  # [T, N, 1 or K]
    active, context = np.ones(len(arms), bool), np.zeros(len(arms.drafts), np.int64)
    state, lost, counts = repeated(selector.init(arms), len(seeds)), np.zeros(len(seeds)), np.zeros(len(arms))
    points = np.linspace(0, steps, min(POINTS, steps) + 1)[1:].round().astype(np.int64)
    kept, shares, due = [], [], set(points.tolist())
    for step in range(steps):
        scores = selector.scores(state, (keys, step), context, cost, active)
        arm = pick(np.broadcast_to(scores, (len(seeds), len(arms))), cost, active)
        paid = (draws[step] < chances[step]).astype(np.float64)
        if selector.update_all is not None:
            state = selector.update_all(state, paid)
        else:
            state = selector.update_reward(state, arm, np.take_along_axis(paid, arm[:, None], 1)[:, 0])
        lost = lost + chances[step].max(1) - np.take_along_axis(chances[step], arm[:, None], 1)[:, 0]
        counts = counts + np.bincount(arm, minlength=len(arms))
        if step + 1 in due:
            kept.append(lost)
            shares.append(counts / counts.sum())
            counts = np.zeros(len(arms))
    return Curve(points, np.array(kept), np.array(shares))


def play(
    selector: Selector,
    world: World,
    given: Text,
    arms: Arms,
    seed: int = 0,
    cost: F64 | None = None,
    learn: Learn = by_update,
    feedback: Feedback = AT_ONCE,
) -> Played:
    """Decode a synthetic text; time counts the world's costs, ``cost`` is what the selector is told.

    Copying drafts have the match streak as context. Drafts of tier 0 are scored at every step.
    """
    return follow(
        selector,
        given.course(world),
        arms,
        world.cost(arms),
        seed=seed,
        told=cost,
        forward=world.forward(),
        feedback=feedback,
        learn=learn,
    )
