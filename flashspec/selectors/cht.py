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
from flashspec.selectors.types import F64, I64, Arms, Bools, Core, Key, Observation, Run, Scored, Selector, floats

Prior = Mapping[str, Sequence[tuple[int, Run]]]
"""Per draft name: (context bucket, run) pairs, scored on the prompt for instance."""


LEAST = 1e-30
"""No weight of a rate becomes less: its logarithm stays finite where nothing is shared."""
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
    """``[..., 2, R, D, contexts + 1, G]``: discounted successes (0) and failures (1); the last row is their sum
    over contexts."""
    log_weight: F64
    """``[..., R, D]``: logarithms of the rates' weights; they sum to 1 over R."""
    lean: F64
    """``[..., D, contexts + 1, G]``: successes that do not fade, from hazards measured before."""
    mass: F64
    """``[..., D, contexts + 1, G]``: the weight of those and of the hazard of all contexts together; in the last row
    the weight of the offset before."""
    rates: F64
    """``[..., 2, R, D]``: what is left of a count after one token, where a step tells of the draft and where not."""
    hazard: F64
    """``[..., R, D, contexts + 1, G]``: each rate's mean hazard, so that a choice need not compute it again; the last
    row is not read."""


def tables(pool: Pool, options: Options, state: Tables, counts: Array, log_weight: Array) -> Tables:
    """The state with these counts and weights."""
    hazard = forecast(pool, options, state, counts)
    return Tables(state.arms, counts, log_weight, state.lean, state.mass, state.rates, hazard)


def forecast(pool: Pool, options: Options, state: Tables, counts: Array) -> Array:
    """``Tables.hazard`` under these counts."""
    return forecast_of(pool, options, counts, state.lean[..., None, :, :, :], state.mass[..., None, :, :, :])


def forecast_of(pool: Pool, options: Options, counts: Array, lean: Array, mass: Array) -> Array:
    """The same for any rows of contexts, the last one their sum; ``lean`` and ``mass`` are ``[..., 1, D, C, G]``."""
    xp, good = pool.xp, counts[..., 0, :, :, :, :]
    total = good + counts[..., 1, :, :, :, :] + mass
    whole = total[..., -1, :]
    mean = options.pool * xp.chain(mass[..., -1, :] / whole, good[..., -1, :] / whole, 0.5)
    value = (good + lean + mean[..., None, :]) / total
    return xp.minimum(xp.maximum(value, hazards.EDGE), 1.0 - hazards.EDGE)


def mixed(pool: Pool, state: Tables, context: Array) -> Array:
    """``[..., D, G]``: hazards in the given context of each draft, mixed over rates."""
    xp = pool.xp
    return xp.sum(xp.exp(state.log_weight)[..., None] * xp.pick(state.hazard, context), -3)


def explore(pool: Pool, state: Tables, key: Key, mean: Array) -> Array:
    """``[..., D, G]``: ``mean``, with the hazards of tier 2 drawn from Beta laws of the slow table's size."""
    if not pool.explores:
        return mean
    xp, slow = pool.xp, state.counts[..., 0, :, -1, :]
    size = 2.0 + xp.sum(slow, -3)
    a, b = xp.maximum(size * mean, 0.01), xp.maximum(size * (1.0 - mean), 0.01)
    return xp.where(pool.resting[:, None] > 0, noise.beta(pool, noise.offset_lanes(pool, key), a, b), mean)


def absorb(
    pool: Pool, options: Options, state: Tables, new: Array, observed: Array, context: Array, kept: Any
) -> Tables:
    """Tables after the outcomes ``new`` of the drafts that were ``observed [..., D]`` over ``kept`` tokens.

    ``new [..., 2, D, contexts + 1, G]`` has them in the row of ``context`` and in the last one. ``kept`` is a number
    or has two trailing dimensions of 1.
    """
    xp, logs, seen = pool.xp, state.log_weight, observed[..., None, :]
    more = gain(xp, xp.pick(state.hazard, context), new[..., -1, :])
    logs = xp.where(seen, shared(xp, options, logs + more, kept), logs)
    fade = xp.where(seen, state.rates[..., 0, :, :], state.rates[..., 1, :, :]) ** kept
    counts = state.counts * fade[..., None, :, :, None, None] + new[..., None, :, :, :]
    return tables(pool, options, state, counts, logs)


def gain(xp: Arrays, hazard: Array, outcomes: Array) -> Array:
    """``[..., R, D]``: the log likelihood of outcomes ``[..., 2, D, G]`` under forecasts ``hazard [..., R, D, G]``.

    Where a probability of acceptance is known instead of a hit, it is that of the hits and misses on average,
    so that the forecast nearest to that probability gains most.
    """
    good, bad = outcomes[..., 0, None, :, :], outcomes[..., 1, None, :, :]
    return xp.sum(good * xp.log(hazard) + bad * xp.log(1.0 - hazard), -1)


def shared(xp: Arrays, options: Options, logs: Array, kept: Any) -> Array:
    """``[..., R, D]``: log weights, normalised, after a fixed share per token; no weight becomes 0."""
    raw = xp.exp(logs - xp.max(logs, -2)[..., None, :])
    part = 1.0 - (1.0 - options.share) ** kept
    return xp.log((1.0 - part) / xp.sum(raw, -2)[..., None, :] * raw + (part / len(options.rates) + LEAST))


def learn(pool: Pool, options: Options, state: Tables, seen: Seen) -> Tables:
    """Tables after one step of each request; decay counts the tokens that the step kept."""
    xp, (outcomes, observed) = pool.xp, evidence(pool, seen)
    kept, row = xp.cast(seen.kept, state.counts)[..., None, None], xp.count(options.contexts + 1)
    here = xp.cast((row == seen.context[..., None]) | (row == options.contexts), state.counts)
    new = xp.cast(outcomes, state.counts)[..., None, :] * here[..., None, :, :, None]
    return absorb(pool, options, state, new, observed, seen.context, kept)


def update(state: Tables, options: Options, seen: Observation) -> Tables:
    """:func:`learn` for one request; late scores come first, oldest first."""
    for context in (*(late.context for late in seen.late), seen.context):
        check_buckets(options, context)
    state = catch_up(options, state, seen.late) if seen.late else state
    new, observed = located(state.arms, options, hazards.told_runs(state.arms, seen), seen.context)
    return absorb(state.arms.pool, options, state, new, observed, seen.context, seen.kept)


def located(arms: Arms, options: Options, runs: Sequence[Run | None], context: I64) -> tuple[F64, Bools]:
    """``new`` and ``observed`` of :func:`absorb` from runs that end at their first miss; draft 0 says nothing."""
    found, told = np.zeros((2, len(runs), options.contexts + 1, arms.longest)), np.zeros(len(runs), bool)
    for d, run in enumerate(runs):
        if d and run is not None:
            hits, told[d] = len(run) - (0 in run), True
            for row in (context[d], -1):
                found[0, d, row, :hits] = 1.0
                if hits < len(run):
                    found[1, d, row, hits] = 1.0
    return found, told


def catch_up(options: Options, state: Tables, late: Sequence[Scored]) -> Tables:
    """:func:`absorb` of several steps, oldest first, for one request, at less than half of the price.

    Counts do not depend on forecasts, so those before every step come first, and then all forecasts at once, of
    the contexts that are needed.
    """
    pool, xp = state.arms.pool, state.arms.pool.xp
    found = [located(state.arms, options, hazards.late_runs(x), x.context) for x in late]
    new, observed = (np.array(values) for values in zip(*found, strict=True))
    context, kept = np.array([x.context for x in late]), np.array([x.kept for x in late])[:, None, None]
    seen, counts = observed[:, None, :], [state.counts]
    fades = np.where(seen, *state.rates) ** kept
    for fade, more in zip(fades[..., None, None], new[:, :, None], strict=True):
        counts.append(counts[-1] * fade + more)
    draft, rows = pool.index[:, None], np.stack((context, np.full_like(context, -1)), -1)
    narrow = np.array([x[:, :, draft, row] for x, row in zip(counts, rows, strict=False)])
    lean, mass = (x[draft, rows][:, None] for x in (state.lean, state.mass))
    hazard = forecast_of(pool, options, narrow, lean, mass)[..., 0, :]
    logs = gain(xp, hazard, new[..., -1, :])
    part = np.where(seen, 1.0 - (1.0 - options.share) ** kept, 0.0)
    weight, least = np.exp(state.log_weight), np.where(seen, part / len(options.rates) + LEAST, 0.0)
    for raw, stay, push in zip(np.exp(logs - logs.max(-2)[:, None, :]), 1.0 - part, least, strict=True):
        weight = weight * raw  # as in ``shared``
        weight = stay / np.add.reduce(weight, -2) * weight + push
    return tables(pool, options, state, counts[-1], np.log(weight))


def check_buckets(options: Options, context: I64) -> None:
    """Refuse contexts that the tables do not have."""
    if max(context.tolist()) >= options.contexts:
        raise ContractError(f"context is {context.tolist()}; allowed: buckets 0 to {options.contexts - 1}")


def start(arms: Arms, options: Options, prior: Prior | None, tokens: float) -> Tables:
    """Empty tables, or tables warmed by ``prior``, whose runs weigh at most ``tokens`` at offset 1."""
    rates, drafts = len(options.rates), len(arms.drafts)
    counts = np.zeros((2, rates, drafts, options.contexts + 1, arms.longest))
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
                counts[0 if hit else 1, :, d, [context, -1], j] += weight
    lean, mass = believed(arms, options)
    fade = np.maximum(np.array(options.rates)[:, None], options.least * arms.pool.resting)
    both = np.stack((fade, np.broadcast_to(options.phi**arms.pool.resting, fade.shape)))
    weights = np.full((rates, drafts), -np.log(rates))
    return tables(arms.pool, options, Tables(arms, counts, weights, lean, mass, both, counts[0]), counts, weights)


def believed(arms: Arms, options: Options) -> tuple[F64, F64]:
    """``Tables.lean`` and ``Tables.mass``: a row goes on with its last hazard beyond its end."""
    lean = np.zeros((len(arms.drafts), options.contexts + 1, arms.longest))
    mass = np.full(lean.shape, options.pool)
    mass[:, -1] = np.where(arms.pool.later, options.chain, 2.0)
    for d, name in enumerate(arms.drafts):
        for context, row in enumerate(options.known.get(name, ())):
            lean[d, context] = options.belief * np.array((*row, *row[-1:] * arms.longest)[: arms.longest])
            mass[d, context] += options.belief
    return lean, mass


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
    return Selector("cht", init, select, observe, scores, None, attrs.asdict(chosen), core=core, per_second=True)
