"""What a step says about acceptance hazards: the outcome of offset j, given that offsets before it held.

One play of a draft reveals every shorter length, and all the longer ones too unless every draft was
accepted. Offsets 1..a are successes; offset a + 1 is a failure only if it was really judged and its
token was kept. Where the committed text tells what an unplayed draft would have proposed, its run up
to the first miss counts as well, censored at the end of the step (Kaplan and Meier).
"""

from __future__ import annotations

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


def evidence(arms: Arms, seen: Observation, kept: int | None = None) -> tuple[F64, Bools]:
    """``[2, D, G]`` successes and failures of the played draft and of every draft that was scored.

    The second value, ``[D]``, marks the drafts about which the step says something. Runs are read up
    to ``kept`` tokens, those that the step committed without it.
    """
    kept = seen.kept if kept is None else kept
    outcomes = np.zeros((2, len(arms.drafts), arms.longest))
    observed = np.zeros(len(arms.drafts), bool)
    played = int(arms.draft[seen.arm]) if seen.offered else 0
    for d in range(1, len(arms.drafts)):
        scored = seen.runs[d]
        if d != played and scored is None:
            continue
        run = own_run(seen) if d == played or scored is None else until_miss(scored[:kept])
        run = run[: arms.longest]
        hits = len(run) - (0 in run)
        observed[d] = True
        outcomes[0, d, :hits] = 1.0
        outcomes[1, d, hits : len(run)] = 1.0
    return outcomes, observed


def scored_evidence(arms: Arms, late: Scored) -> tuple[F64, Bools]:
    """The same as :func:`evidence` for drafts that were scored on the tokens of an earlier step."""
    none = Observation(0, 0, 0, 1, late.runs, 0.0, late.context)
    return evidence(arms, none, late.kept)


def drafted_tokens(pool: Pool, hazard: Array) -> Array:
    """``[..., D, G]``: drafted tokens that a step keeps at lengths 1..G, the sum of survival, from hazards."""
    return pool.xp.cumsum(pool.xp.cumprod(hazard))


def throughput(pool: Pool, hazard: Array, cost: Array) -> Array:
    """``[..., M]``: expected tokens over cost of each arm."""
    kept = drafted_tokens(pool, hazard)
    flat = pool.xp.reshape(kept, (*kept.shape[:-2], pool.drafts * pool.longest))
    return (1.0 + pool.drafted * pool.xp.take(flat, pool.place)) / cost
