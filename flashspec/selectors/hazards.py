"""What a step says about acceptance hazards: the outcome of offset j, given that offsets before it held.

One play of a draft reveals every shorter length, and all the longer ones too unless every draft was
accepted. Offsets 1..a are successes; offset a + 1 is a failure only if it was really judged and its
token was kept. Where the committed text tells what an unplayed draft would have proposed, its run up
to the first miss counts as well, censored at the end of the step (Kaplan and Meier).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flashspec.selectors.arrays import Array
from flashspec.selectors.pool import Pool
from flashspec.selectors.types import F64, Arms, Bools, Observation, Run, Scored

EDGE = 1e-9
"""Hazards stay this far from 0 and 1: the chain over offsets could round to 1, and the log of a miss diverge."""


def own_run(seen: Observation) -> Run:
    """Hits of the played draft; tokens cut after acceptance are not failures."""
    hits = (1,) * min(seen.accepted, seen.kept)
    missed = seen.accepted < seen.offered and seen.kept == seen.accepted + 1
    return (*hits, 0) if missed else hits


def until_miss(run: Run) -> Run:
    """A run up to and with its first miss."""
    return run[: run.index(0) + 1] if 0 in run else run


def evidence(arms: Arms, seen: Observation) -> tuple[F64, Bools]:
    """``[2, D, G]`` successes and failures of the played draft and of every draft that was scored.

    The second value, ``[D]``, marks the drafts about which the step says something. Runs are read up
    to the tokens that the step kept.
    """
    return outcomes(arms, told_runs(arms, seen))


def told_runs(arms: Arms, seen: Observation) -> list[Run | None]:
    """``[D]``: the runs that :func:`evidence` counts, up to their first miss and to what the step kept."""
    runs = [None if run is None else until_miss(run[: seen.kept]) for run in seen.runs]
    if seen.offered:
        runs[int(arms.draft[seen.arm])] = own_run(seen)
    return runs


def late_runs(late: Scored) -> list[Run | None]:
    """The same of drafts that were scored on the tokens of an earlier step."""
    return [None if run is None else until_miss(run[: late.kept]) for run in late.runs]


def scored_evidence(arms: Arms, late: Scored) -> tuple[F64, Bools]:
    """The same as :func:`evidence` for drafts that were scored on the tokens of an earlier step."""
    return outcomes(arms, late_runs(late))


def outcomes(arms: Arms, runs: Sequence[Run | None]) -> tuple[F64, Bools]:
    """:func:`evidence` of runs that end at their first miss; draft 0 says nothing."""
    found, told = np.zeros((2, len(runs), arms.longest)), np.zeros(len(runs), bool)
    for d, run in enumerate(runs):
        if d and run is not None:
            hits, told[d] = len(run) - (0 in run), True
            found[0, d, :hits] = 1.0
            found[1, d, hits : len(run)] = 1.0
    return found, told


def drafted_tokens(pool: Pool, hazard: Array) -> Array:
    """``[..., D, G]``: drafted tokens that a step keeps at lengths 1..G, the sum of survival, from hazards."""
    return pool.xp.cumsum(pool.xp.cumprod(hazard))


def throughput(pool: Pool, hazard: Array, cost: Array) -> Array:
    """``[..., M]``: expected tokens over cost of each arm."""
    kept = drafted_tokens(pool, hazard)
    flat = pool.xp.reshape(kept, (*kept.shape[:-2], pool.drafts * pool.longest))
    return (1.0 + pool.drafted * pool.xp.take(flat, pool.place)) / cost
