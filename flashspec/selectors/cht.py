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
from flashspec.selectors.types import F64, I64, OWN, Arms, Bools, Key, Observation, Run, Selector, floats

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
    phi: float = 0.994
    contexts: int = 4
    known: Known = attrs.field(factory=dict, converter=known_tables)
    """Hazards measured before, per draft name: for each context those of offsets 1, 2, ...; the last one stays."""
    belief: float = 8.0
    """Weight of ``known``, in observations; it does not fade."""

    def __attrs_post_init__(self) -> None:
        if not self.rates or not all(0 < r <= 1 for r in (*self.rates, self.phi)):
            raise ContractError(f"{self}; allowed: rates and phi in (0, 1]")
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
    """The state of CHT."""

    arms: Arms
    counts: F64
    """``[2, R, D, contexts, G]``: discounted successes (0) and failures (1)."""
    log_weight: F64
    """``[R, D]``: logarithms of the rates' weights; they sum to 1 over R."""
    known: F64
    """``[D, contexts, G]``: hazards measured before."""
    belief: F64
    """``[D]``: their weight, 0 for drafts of which nothing is known."""


def weights(log_weight: F64) -> F64:
    """``[R, D]``: the weight of each rate."""
    raw = np.exp(log_weight - log_weight.max(0))
    return np.asarray(raw / raw.sum(0))


def hazard(state: Tables, options: Options, context: I64) -> F64:
    """``[R, D, G]``: each rate's mean hazard in the given context of each draft."""
    if (context >= options.contexts).any():
        raise ContractError(f"context is {context.tolist()}; allowed: buckets 0 to {options.contexts - 1}")
    good, bad = state.counts.sum(3).transpose(0, 3, 1, 2)  # each [G, R, D]
    chain = np.full((len(good), 1, 1), options.chain)
    chain[0] = 2.0
    total = chain + good + bad
    last: Any = 0.5
    steps = zip(chain / total, good / total, strict=True)
    pooled = np.array([last := keep * last + push for keep, push in steps])
    drafts = np.arange(len(context))
    hits, misses = state.counts[:, :, drafts, context]
    belief = state.belief[:, None]
    prior = belief * state.known[drafts, context] + options.pool * pooled.transpose(1, 2, 0)
    mean = (prior + hits) / (belief + options.pool + hits + misses)
    return np.asarray(np.minimum(np.maximum(mean, hazards.EDGE), 1.0 - hazards.EDGE))


def explore(state: Tables, key: Key, mean: F64) -> F64:
    """``[D, G]``: ``mean``, with the hazards of tier 2 drawn from Beta laws of the slow table's size."""
    arms = state.arms
    own = [d for d, tier in enumerate(arms.tier) if tier == OWN]
    if not own:
        return mean
    size = 2.0 + state.counts[:, 0, own].sum((0, 2))
    centre = mean[own]
    a, b = np.maximum(size * centre, 0.01), np.maximum(size * (1.0 - centre), 0.01)
    drawn = mean.copy()
    drawn[own] = noise.beta(noise.offset_lanes(key, arms, own), a, b)
    return drawn


def learn(state: Tables, options: Options, seen: Observation) -> Tables:
    """Tables after one step; decay counts the tokens that the step kept. Late scores come first, oldest first."""
    for late in seen.late:
        outcomes, observed = hazards.scored_evidence(state.arms, late)
        state = absorb(state, options, outcomes, observed, late.context, late.kept)
    outcomes, observed = hazards.evidence(state.arms, seen)
    state = absorb(state, options, outcomes, observed, seen.context, seen.kept)
    resting = np.array([tier == OWN for tier in state.arms.tier]) & ~observed
    if not resting.any():
        return state
    faded = np.where(resting, options.phi**seen.kept, 1.0)[:, None, None]
    return attrs.evolve(state, counts=state.counts * faded)


def absorb(state: Tables, options: Options, outcomes: F64, observed: Bools, context: I64, kept: int) -> Tables:
    """Tables after the outcomes ``[2, D, G]`` of the drafts that were ``observed`` over ``kept`` tokens."""
    predicted = hazard(state, options, context)
    gain = (outcomes[0] * np.log(predicted) + outcomes[1] * np.log1p(-predicted)).sum(-1)  # [R, D]
    rates = np.array(options.rates)[:, None] ** kept
    counts = state.counts * np.where(observed, rates, 1.0)[..., None, None]
    counts[:, :, np.arange(len(observed)), context] += outcomes[:, None]
    shared = 1.0 - (1.0 - options.share) ** kept
    mixed = (1.0 - shared) * weights(state.log_weight + gain) + shared / len(options.rates)
    logs = np.where(observed, np.log(mixed), state.log_weight)
    return attrs.evolve(state, counts=counts, log_weight=logs)


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
    return Tables(arms, counts, np.full((rates, drafts), -np.log(rates)), *believed(arms, options))


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

    ``init(arms, prior=None, tokens=30.0)`` takes runs scored beforehand, capped to that weight.
    Context buckets are the loop's: 0 where there is none, else 0 to 3 for matches of 1, 2, 3 to 6
    and 7 or more tokens.
    """
    chosen = choice.options(Options, "cht", options)

    def init(arms: Arms, prior: Prior | None = None, tokens: float = 30.0) -> Tables:
        return start(arms, chosen, prior, tokens)

    def scores(state: Tables, key: Key, context: I64, cost: F64, active: Bools) -> F64:
        mean = (weights(state.log_weight)[..., None] * hazard(state, chosen, context)).sum(0)
        return hazards.throughput(state.arms, explore(state, key, mean), cost)

    def update(state: Tables, seen: Observation) -> Tables:
        choice.check_seen(state.arms, seen)
        return learn(state, chosen, seen)

    def propensity(state: Tables, active: Bools, arm: int) -> float | None:
        return None if OWN in state.arms.tier else 1.0

    select = choice.select_by(scores, propensity)
    return Selector("cht", init, select, update, scores, None, attrs.asdict(chosen))
