"""The drafts of a batch chosen together: its requests share one step, which takes what the rows of all of them take.

The arms that maximise the expected tokens of all requests over the seconds of the step are found through one price a
row, in tokens: at a price every request takes the arm whose expected tokens, less the price of its rows, are the most,
and the price with the best ratio at the batch's measured costs wins. A draft token is kept with a probability, so that
prices from 0 to 1 are all that there are; a step without drafts is looked at as well, so the choice is never worse
than that one by those costs. Seconds of drafting are charged at the pace that was found so far (Dinkelbach 1967, On
nonlinear fractional programming).
"""

from __future__ import annotations

import numpy as np

from flashspec.decoding.batch_cost import BatchCost
from flashspec.selectors.types import F64, I64, Arms

PRICES: F64 = np.linspace(1.0, 0.0, 41)
"""Tokens that a row must be worth."""
ROUNDS = 3
"""Times that the pace is found anew where drafting takes seconds."""


def best_together(cost: BatchCost, arms: Arms, expected: F64) -> I64:
    """``[B]``: an arm for each request.

    Args:
        cost: of steps and drafts.
        arms: what there is to choose from; arm 0 drafts nothing.
        expected: ``[B, M]`` tokens that a request's step commits with each arm; minus infinity where it cannot play.
    """
    batch, made, price = len(expected), cost.drafting(arms), charges(cost, arms)
    plain = cost.step(batch, 1)
    pace = batch / plain
    chosen: I64 = np.zeros(batch, np.int64)
    for _ in range(ROUNDS if made.any() else 1):
        options = (expected - pace * made - price[:, None]).argmax(-1)  # [P, B]
        length = arms.length[options]
        width = 1.0 + (length.max(-1) if cost.padded else length.mean(-1))
        # A disturbed measurement may show a wider step as the cheaper one; it is not.
        seconds = np.maximum(plain, cost.steps(batch, width)) + made[options].sum(-1)
        paces = expected[np.arange(batch), options].sum(-1) / seconds
        best = int(paces.argmax())
        chosen, pace = options[best], float(paces[best])
    return chosen


def charges(cost: BatchCost, arms: Arms) -> F64:
    """``[P, M]``: what arms are charged in tokens, a row of candidates each.

    Where every request costs what the widest one does, rows are no measure: candidates are limits of the length.
    """
    if cost.padded:
        return np.where(arms.length > np.unique(arms.length)[:, None], np.inf, 0.0)
    return np.concatenate((np.where(arms.length > 0, np.inf, 0.0)[None], PRICES[:, None] * arms.length))
