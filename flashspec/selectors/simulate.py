"""Experiments: plain Bernoulli rewards with all seeds in one array, and decoding of synthetic texts.

Both run the arithmetic that the decoding loop runs: a selector's own ``scores``, ``select`` and updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.choice import pick
from flashspec.selectors.environments import Copying, Text, World, bucket
from flashspec.selectors.types import F64, FREE, I64, Arms, Observation, Run, Selector, State

SEED_RATES = (0.3, 0.7, 0.5)
SEED_STEPS = 10_000


def plain_arms(count: int) -> tuple[Arms, F64]:
    """Arms for ``count`` plain rewards, and the cost table that makes their rewards comparable as they are.

    Arm 0 is one of them. A cost of ``length + 1`` gives every arm the same largest throughput, so that
    the share of it is the reward itself.
    """
    arms = Arms.of({f"arm{k}": (1,) for k in range(1, count)})
    return arms, (arms.length + 1).astype(np.float64)


def batch(state: State, size: int) -> State:
    """The same state for each of ``size`` seeds: arrays with a leading dimension."""
    arrays = {f.name: getattr(state, f.name) for f in attrs.fields(type(state)) if f.name != "arms"}
    return attrs.evolve(state, **{name: np.broadcast_to(x, (size, *x.shape)) for name, x in arrays.items()})


def regret(
    selector: Selector, seeds: Sequence[int], rates: Sequence[float] = SEED_RATES, steps: int = SEED_STEPS
) -> F64:
    """``[len(seeds)]``: pseudo-regret of each seed, the sum over steps of best rate minus the rate played.

    A seed decides both its rewards (NumPy's PCG64, one uniform per step) and the selector's key.

    Raises:
        ContractError: no rate, a rate outside [0, 1], or a selector without plain rewards.
    """
    if not rates or any(not 0 <= r <= 1 for r in rates):
        raise ContractError(f"rates are {tuple(rates)}; allowed: at least one number in [0, 1]")
    if selector.update_reward is None:
        raise ContractError(f"selector {selector.name} takes no plain rewards; ucb1, thompson do")
    arms, cost = plain_arms(len(rates))
    chance, keys = np.array(rates), np.array(seeds, np.uint64)
    draws = np.stack([np.random.default_rng(int(seed)).random(steps) for seed in seeds], 1)  # [steps, N]
    active, context = np.ones(len(arms), bool), np.zeros(len(arms.drafts), np.int64)
    state, lost = batch(selector.init(arms), len(seeds)), np.zeros(len(seeds))
    for step in range(steps):
        scores = selector.scores(state, (keys, step), context, cost, active)
        arm = pick(np.broadcast_to(scores, (len(seeds), len(arms))), cost, active)
        reward = (draws[step] < chance[arm]).astype(np.float64)
        state = selector.update_reward(state, arm, reward)
        lost += chance.max() - chance[arm]
    return lost


Learn = Callable[[Selector, State, Observation], State]


def by_update(selector: Selector, state: State, seen: Observation) -> State:
    """What a decoding loop does."""
    return selector.update(state, seen)


@attrs.frozen(eq=False)
class Played:
    """What a policy did with a text."""

    time_per_token: float
    plays: I64
    """``[M]``: how often each arm was taken."""


def play(
    selector: Selector,
    world: World,
    given: Text,
    arms: Arms,
    seed: int = 0,
    cost: F64 | None = None,
    learn: Learn = by_update,
) -> Played:
    """Decode a synthetic text; time counts the world's costs, ``cost`` is what the selector is told.

    Copying drafts have the match streak as context. Drafts of tier 0 are scored at every step.
    """
    true = world.cost(arms)
    told, active = true if cost is None else cost, np.ones(len(arms), bool)
    copying = [0, *(int(isinstance(d.kind, Copying)) for d in world.drafters)]
    contexts = (bucket(given.streak) * np.array(copying)[:, None]).T  # [L, D]
    accepted, free = given.accepted.tolist(), [d for d, t in enumerate(arms.tier) if d and t == FREE]
    state, plays, place, time, step = selector.init(arms), np.zeros(len(arms), np.int64), 0, 0.0, 0
    while place < given.size:
        arm, info = selector.select(state, (seed, step), contexts[place], told, active)
        length = int(arms.length[arm])
        hits = min(length, accepted[arms.draft[arm]][place])
        runs: list[Run | None] = [None] * len(arms.drafts)
        for d in free:
            runs[d] = ((1,) * accepted[d][place] + (0,))[: hits + 1]
        seen = Observation(arm, length, hits, hits + 1, tuple(runs), float(true[arm]), info.context)
        state = learn(selector, state, seen)
        plays[arm] += 1
        place, time, step = place + hits + 1, time + float(true[arm]), step + 1
    return Played(time / place, plays)
