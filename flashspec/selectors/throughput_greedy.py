"""Greedy throughput from recent acceptance: per offset the last 20 outcomes, no exploration.

After SGLang's throughput-aware lengths (sgl-project/sglang, pull request 28045), here as a baseline
and for several drafts at once: the hazard of an offset is its mean over its last ``window`` outcomes,
expected tokens over cost are maximised. An offset that was never judged takes the hazard of the one
before it, a draft that was never judged 1, so that each is tried once.
"""

from __future__ import annotations

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors import choice, hazards
from flashspec.selectors.types import F64, I64, Arms, Bools, Key, Observation, Selector


@attrs.frozen(eq=False)
class Recent:
    """The last outcomes of every offset."""

    arms: Arms
    hits: F64
    """``[D, G, window]``: a ring of outcomes, 0 and 1."""
    judged: I64
    """``[D, G]``: how many there were."""


def hazard(state: Recent) -> F64:
    """``[D, G]``: mean of recent outcomes, carried on over offsets without any."""
    window = state.hits.shape[-1]
    count = np.minimum(state.judged, window)
    mean = state.hits.sum(-1) / np.maximum(count, 1)
    # The last offset that was judged, at each offset; 0 and a hazard of 1 before any.
    places = np.where(count > 0, np.arange(1, mean.shape[-1] + 1), 0)
    last = np.maximum.accumulate(places, -1)
    known = np.concatenate((np.ones((len(mean), 1)), mean), -1)
    return np.take_along_axis(known, last, -1)


def scores(state: Recent, key: Key, context: I64, cost: F64, active: Bools) -> F64:
    """``[M]``: expected tokens over cost."""
    return np.asarray(hazards.throughput(state.arms.pool, hazard(state), cost))


def update(state: Recent, seen: Observation) -> Recent:
    """Outcomes of the played draft and of every draft that was scored, over the oldest ones."""
    choice.check_seen(state.arms, seen)
    outcomes, _ = hazards.evidence(state.arms, seen)
    judged = outcomes.sum(0) > 0
    here = np.arange(state.hits.shape[-1]) == (state.judged % state.hits.shape[-1])[..., None]
    hits = np.where(here & judged[..., None], outcomes[0][..., None], state.hits)
    return Recent(state.arms, hits, state.judged + judged)


def throughput_greedy(*, window: int = 20) -> Selector:
    """The selector; ``window`` >= 1 outcomes per offset. Raises ContractError for another one."""
    if window < 1:
        raise ContractError(f"window is {window}; allowed: an integer >= 1 (20 is the published one)")

    def init(arms: Arms) -> Recent:
        shape = (len(arms.drafts), arms.longest)
        return Recent(arms, np.zeros((*shape, window)), np.zeros(shape, np.int64))

    select = choice.select_by(scores, choice.certain)
    config = {"window": window}
    return Selector("throughput_greedy", init, select, update, scores, None, config, per_second=True)
