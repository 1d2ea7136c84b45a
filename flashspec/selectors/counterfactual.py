"""What a step says about arms that were not played, as rewards."""

from __future__ import annotations

import numpy as np

from flashspec.selectors import hazards
from flashspec.selectors.types import F64, Arms, Bools, Observation


def rewards(arms: Arms, seen: Observation) -> tuple[F64, Bools] | None:
    """``[M]`` shares of an arm's own most tokens, and the arms for which the step tells them; None for a cut step.

    An arm is told only if it would have been told whatever came: a played draft up to the length
    offered, a scored one up to the tokens committed. To read a longer arm's miss, and leave out its
    hit because that was cut off, would make long arms look worse than they are.
    """
    if seen.kept < seen.accepted + 1:
        return None
    hits, told = np.zeros(len(arms.drafts), np.int64), np.zeros(len(arms.drafts), np.int64)
    played = int(arms.draft[seen.arm]) if seen.offered else 0
    for d in range(1, len(arms.drafts)):
        scored = seen.runs[d]
        if d == played:
            hits[d], told[d] = seen.accepted, seen.offered
        elif scored is not None:
            run = hazards.until_miss(scored[: seen.kept])
            hits[d], told[d] = sum(run), seen.kept if 0 in run else len(run)
    share = (np.minimum(hits[arms.draft], arms.length) + 1) / (arms.length + 1)
    return share, arms.length <= told[arms.draft]
