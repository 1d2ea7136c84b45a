"""Contextual hazard tables (CHT): the default for speculation.

Each draft has discounted counts of success and failure per offset and context bucket, at several
forgetting rates that are mixed by how well they predict (Bayesian model averaging, fixed share).
Contexts shrink towards the draft's pooled hazard, offsets towards the one before. The arm maximises
expected tokens over cost, in closed form over lengths. Drafts that are scored without being played
are taken at their mean; the others (tier 2) are drawn from a Beta law and drift when not played.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError, unknown_name
from flashspec.selectors import choice, hazards, noise
from flashspec.selectors.arrays import Array, Arrays
from flashspec.selectors.pool import Pool
from flashspec.selectors.seen import Seen, evidence
from flashspec.selectors.types import F64, I64, Arms, Bools, Core, Key, Observation, Run, Selector, floats

Prior = Mapping[str, Sequence[tuple[int, Run]]]
"""Per draft name: (context bucket, run) pairs, scored on the prompt for instance."""


Known = Mapping[str, tuple[tuple[float, ...], ...]]
"""Per draft name: hazards by context, then by offset."""


def known_tables(tables: Mapping[str, Sequence[Sequence[float]]]) -> Known:
    """The tables as tuples, so that options cannot change later."""
    return {name: tuple(tuple(map(float, row)) for row in table) for name, table in tables.items()}


@attrs.frozen
class Options:
    """Constants; rates are per emitted token and ``rates[0]`` is the slow one."""

    rates: tuple[float, ...] = attrs.field(default=(0.999, 0.99, 0.95), converter=floats)
    share: float = 0.005
    chain: float = 3.0
    """Weight, in observations, of an offset's prior: the hazard of the offset before it."""
    pool: float = 4.0
    """Weight of a context's prior: the hazard of all contexts together."""
    phi: float = 0.998
    least: float = 0.99
    """Drafts of tier 2 forget no faster: a run of bad luck would send the choice to drafts not seen lately."""
    contexts: int = 4
    known: Known = attrs.field(factory=dict, converter=known_tables)
    """Hazards measured before, per draft name: for each context those of offsets 1, 2, ...; the last one stays."""
    belief: float = 8.0
    """Weight of ``known``, in observations; it does not fade."""

    def __attrs_post_init__(self) -> None:
        if not self.rates or not all(0 < r <= 1 for r in (*self.rates, self.phi, self.least)):
            raise ContractError(f"{self}; allowed: rates, phi and least in (0, 1]")
        if not 0 <= self.share <= 1 or not (0 < self.chain < np.inf and 0 < self.pool < np.inf):
            raise ContractError(f"{self}; allowed: share in [0, 1], chain and pool finite and > 0")
        if self.contexts < 1 or not 0 <= self.belief < np.inf:
            raise ContractError(f"{self}; allowed: at least one context, belief finite and >= 0")
        for name, table in self.known.items():
            if len(table) != self.contexts or not all(row and all(0 < h < 1 for h in row) for row in table):
                raise ContractError(
                    f"known hazards of {name} are {table}; allowed: {self.contexts} rows of numbers in (0, 1)"
                )


@attrs.frozen(eq=False)
class Tables:
    """The state of CHT. Build it with :func:`tables`: ``hazard`` says what the others imply."""

    arms: Arms
    counts: F64
    """``[..., 2, R, D, contexts, G]``: discounted successes (0) and failures (1)."""
    log_weight: F64
    """``[..., R, D]``: logarithms of the rates' weights; they sum to 1 over R."""
    known: F64
    """``[..., D, contexts, G]``: hazards measured before."""
    belief: F64
    """``[..., D]``: their weight, 0 for drafts of which nothing is known."""
    hazard: F64
    """``[..., R, D, contexts, G]``: each rate's mean hazard, so that a choice need not compute it again."""


def tables(
    pool: Pool, options: Options, arms: Arms, counts: Array, log_weight: Array, known: Array, belief: Array
) -> Tables:
    """The state with these counts."""
    return Tables(arms, counts, log_weight, known, belief, forecast(pool, options, counts, known, belief))


def forecast(pool: Pool, options: Options, counts: Array, known: Array, belief: Array) -> Array:
    """``[..., R, D, contexts, G]``: each rate's mean hazard."""
    xp = pool.xp
    pooled = xp.sum(counts, -2)
    good = pooled[..., 0, :, :, :]
    chain = 2.0 + (options.chain - 2.0) * xp.cast(pool.later, counts)
    total = good + pooled[..., 1, :, :, :] + chain
    mean = xp.chain(chain / total, good / total, 0.5)[..., None, :]
    hits, misses = counts[..., 0, :, :, :, :], counts[..., 1, :, :, :, :]
    prior = (belief[..., None, None] * known)[..., None, :, :, :] + options.pool * mean
    value = (prior + hits) / (hits + misses + (belief + options.pool)[..., None, :, None, None])
    return xp.minimum(xp.maximum(value, hazards.EDGE), 1.0 - hazards.EDGE)


def mixed(pool: Pool, state: Tables, context: Array) -> Array:
    """``[..., D, G]``: hazards in the given context of each draft, mixed over rates."""
    xp = pool.xp
    return xp.sum(xp.exp(state.log_weight)[..., None] * xp.pick(state.hazard, context), -3)


def explore(pool: Pool, state: Tables, key: Key, mean: Array) -> Array:
    """``[..., D, G]``: ``mean``, with the hazards of tier 2 drawn from Beta laws of the slow table's size."""
    if not pool.explores:
        return mean
    xp = pool.xp
    size = 2.0 + xp.sum(xp.sum(state.counts[..., 0, :, :, :], -2), -3)
    a, b = xp.maximum(size * mean, 0.01), xp.maximum(size * (1.0 - mean), 0.01)
    return xp.where(pool.resting[:, None] > 0, noise.beta(pool, noise.offset_lanes(pool, key), a, b), mean)


def absorb(
    pool: Pool, options: Options, state: Tables, outcomes: Array, observed: Array, context: Array, kept: Any, idle: Any
) -> Tables:
    """Tables after the outcomes ``[..., 2, D, G]`` of the drafts that were ``observed [..., D]`` over ``kept`` tokens.

    ``kept`` is a number or has two trailing dimensions of 1. Counts of the other drafts are multiplied
    by ``idle`` (``[D]`` or a number) per token.
    """
    xp, logs = pool.xp, state.log_weight
    seen = observed[..., None, :]
    logs = xp.where(seen, shared(xp, options, logs + gain(pool, state, outcomes, context), kept), logs)
    rates = xp.maximum(xp.cast(xp.vector(options.rates), logs)[:, None], options.least * xp.cast(pool.resting, logs))
    fade = xp.where(seen, rates, idle) ** kept
    here = xp.cast(xp.count(options.contexts) == context[..., None], outcomes)[..., None, :, :, None]
    new = (outcomes[..., None, :] * here)[..., None, :, :, :]
    counts = state.counts * fade[..., None, :, :, None, None] + new
    return tables(pool, options, state.arms, counts, logs, state.known, state.belief)


def gain(pool: Pool, state: Tables, outcomes: Array, context: Array) -> Array:
    """``[..., R, D]``: the log likelihood of the outcomes under each rate's forecast.

    Where a probability of acceptance is known instead of a hit, its forecast counts by the chance to
    get there; an offset that was not reached has a factor of 1.
    """
    xp, good, bad = pool.xp, outcomes[..., 0, :, :], outcomes[..., 1, :, :]
    reach = good + bad
    never = xp.cast(reach == 0, reach)
    chance = reach + never
    rest = ((bad + never) / chance)[..., None, :, :]
    slope = ((good - bad) / chance)[..., None, :, :]
    return xp.sum(reach[..., None, :, :] * xp.log(slope * xp.pick(state.hazard, context) + rest), -1)


def shared(xp: Arrays, options: Options, logs: Array, kept: Any) -> Array:
    """``[..., R, D]``: log weights, normalised, after a fixed share per token."""
    raw = xp.exp(logs - xp.max(logs, -2)[..., None, :])
    part = 1.0 - (1.0 - options.share) ** kept
    return xp.log((1.0 - part) * raw / xp.sum(raw, -2)[..., None, :] + part / len(options.rates))


def learn(pool: Pool, options: Options, state: Tables, seen: Seen) -> Tables:
    """Tables after one step of each request; decay counts the tokens that the step kept."""
    outcomes, observed = evidence(pool, seen)
    kept = pool.xp.cast(seen.kept, state.counts)[..., None, None]
    idle = options.phi ** pool.xp.cast(pool.resting, state.counts)
    return absorb(pool, options, state, pool.xp.cast(outcomes, state.counts), observed, seen.context, kept, idle)


def update(state: Tables, options: Options, seen: Observation) -> Tables:
    """:func:`learn` for one request; late scores come first, oldest first."""
    pool = state.arms.pool
    for late in seen.late:
        outcomes, observed = hazards.scored_evidence(state.arms, late)
        check_buckets(options, late.context)
        state = absorb(pool, options, state, outcomes, observed, late.context, late.kept, 1.0)
    outcomes, observed = hazards.evidence(state.arms, seen)
    check_buckets(options, seen.context)
    return absorb(pool, options, state, outcomes, observed, seen.context, seen.kept, options.phi**pool.resting)


def check_buckets(options: Options, context: I64) -> None:
    """Refuse contexts that the tables do not have."""
    if np.count_nonzero(context >= options.contexts):
        raise ContractError(f"context is {context.tolist()}; allowed: buckets 0 to {options.contexts - 1}")


def start(arms: Arms, options: Options, prior: Prior | None, tokens: float) -> Tables:
    """Empty tables, or tables warmed by ``prior``, whose runs weigh at most ``tokens`` at offset 1."""
    rates, drafts = len(options.rates), len(arms.drafts)
    counts = np.zeros((2, rates, drafts, options.contexts, arms.longest))
    if not 0 <= tokens < np.inf:
        raise ContractError(f"tokens is {tokens}; allowed: a finite number >= 0, the most that a prior weighs")
    for name, runs in (prior or {}).items():
        if name not in arms.drafts[1:]:
            raise unknown_name("draft", name, list(arms.drafts[1:]))
        d, weight = arms.drafts.index(name), min(1.0, tokens / max(1, len(runs)))
        for context, run in runs:
            if not 0 <= context < options.contexts:
                raise ContractError(f"prior context {context} of {name}; allowed: 0 to {options.contexts - 1}")
            for j, hit in enumerate(hazards.until_miss(run)[: arms.longest]):
                counts[0 if hit else 1, :, d, context, j] += weight
    return tables(arms.pool, options, arms, counts, np.full((rates, drafts), -np.log(rates)), *believed(arms, options))


def believed(arms: Arms, options: Options) -> tuple[F64, F64]:
    """``Tables.known`` and ``Tables.belief``: a row goes on with its last hazard beyond its end."""
    known = np.full((len(arms.drafts), options.contexts, arms.longest), 0.5)
    belief = np.zeros(len(arms.drafts))
    for d, name in enumerate(arms.drafts):
        for context, row in enumerate(options.known.get(name, ())):
            known[d, context] = (*row, *row[-1:] * arms.longest)[: arms.longest]
            belief[d] = options.belief
    return known, belief


def cht(**options: Any) -> Selector:
    """The selector; see :class:`Options` for the constants and their defaults.

    ``init(arms, prior=None, tokens=60.0)`` takes runs scored beforehand, capped to that weight.
    Context buckets are the loop's: 0 where there is none, else 0 to 3 for matches of 1, 2, 3 to 6
    and 7 or more tokens.
    """
    chosen = choice.options(Options, "cht", options)

    def init(arms: Arms, prior: Prior | None = None, tokens: float = 60.0) -> Tables:
        return start(arms, chosen, prior, tokens)

    def core_scores(pool: Pool, state: Tables, key: Key, context: Array, cost: Array, active: Array) -> Array:
        return hazards.throughput(pool, explore(pool, state, key, mixed(pool, state, context)), cost)

    def core_learn(pool: Pool, state: Tables, seen: Seen) -> Tables:
        return learn(pool, chosen, state, seen)

    on_host = choice.on_host(core_scores)

    def scores(state: Tables, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        check_buckets(chosen, context)
        return on_host(state, key, context, cost, active)

    def observe(state: Tables, seen: Observation) -> Tables:
        choice.check_seen(state.arms, seen)
        return update(state, chosen, seen)

    def propensity(state: Tables, active: Bools, arm: int) -> float | None:
        return None if state.arms.pool.explores else 1.0

    select = choice.select_by(scores, propensity)
    core = Core(core_scores, core_learn)
    return Selector("cht", init, select, observe, scores, None, attrs.asdict(chosen), core=core)
