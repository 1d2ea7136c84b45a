"""What chance may do in a choice: all of it comes from the key, in a domain of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import stats

from flashspec import rng
from flashspec.contract import Domain, Stream
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.selectors.subject import Subject
from flashspec_conformance.selectors.world import (
    arms_of,
    taken,
    wander,
)

ALARM = 1e-6
"""False-alarm rate of each statistical verdict; the keys are fixed, so that a red is the same every time."""
OTHERS = (Domain.DRAFT, Domain.ACCEPT, Domain.RESIDUAL, Domain.BONUS, Domain.COUPLE)


def key_only(subject: Subject) -> None:
    """Randomness comes from the key: global generators are neither read nor moved."""
    selector, arms = subject.build(), arms_of()
    state, held = wander(selector, arms, 30).state, random.getstate()
    legacy = np.random.get_state()  # noqa: NPY002  # a selector might use it
    try:
        for number in range(40):
            rows = []
            for seed in (1, 2, 3):
                random.seed(seed)
                np.random.seed(seed)  # noqa: NPY002  # a selector might use it
                at, there = random.getstate(), _legacy()
                arm, info = taken(selector, state, (11, number), arms)
                require(random.getstate() == at and _legacy() == there, "select drew from a global generator")
                rows.append((arm, info.scores.tobytes()))
            require(len(set(rows)) == 1, f"one call of select with key (11, {number}) had several answers")
    finally:
        random.setstate(held)
        np.random.set_state(legacy)  # noqa: NPY002  # put back as it was


def _legacy() -> tuple[bytes, int]:
    state: Any = np.random.get_state()  # noqa: NPY002  # a selector might use it
    return state[1].tobytes(), int(state[2])


def key_counts(subject: Subject) -> None:
    """Seed and step both matter where a choice is random, neither where its propensity is 1, as often as it says."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 30).state
    rows = [taken(selector, state, key, arms) for key in ((1, 1), (1, 2), (2, 1), (2, 2))]
    certain = all(info.propensity == 1.0 for _, info in rows)
    different = len({(arm, info.scores.tobytes()) for arm, info in rows})
    if certain:
        require(different == 1, "the propensity is 1, but arms or scores change with the key")
        return
    require(different == 4, f"seeds 1 and 2 at steps 1 and 2 gave {different} different sets of scores, not 4")
    if rows[0][1].propensity is not None:
        _frequencies(subject)


def _frequencies(subject: Subject) -> None:
    """Arms are taken as often as their propensity says: 2,000 keys, two-sided, 1e-6 in all."""
    selector, arms, keys = subject.build(), arms_of(), 2000
    state = wander(selector, arms, 30).state
    counts, told = np.zeros(len(arms)), np.full(len(arms), np.nan)
    for step in range(keys):
        arm, info = taken(selector, state, (5, step), arms)
        counts[arm] += 1
        told[arm] = info.propensity
    for arm, name in enumerate(arms.names):
        if counts[arm]:
            value = float(stats.binomtest(int(counts[arm]), keys, float(told[arm])).pvalue)
            what = f"{name} was taken {int(counts[arm])} times in {keys}; its propensity is {told[arm]:.3g}"
            require(value > ALARM / len(arms), what)


def key_domain(subject: Subject) -> None:
    """``flashspec.rng`` is asked for numbers of the domain SELECT and the given seed and step alone."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 10).state
    with _watched() as calls:
        for step in (5, 6):
            taken(selector, state, (2**40 + 3, step), arms)
    for (_, step, _, domain), (low, high) in calls:
        domains, steps = set(np.unique(domain).tolist()), set(np.unique(step).tolist())
        require(domains == {int(Domain.SELECT)}, f"numbers of domain {domains} were drawn; allowed: SELECT (6)")
        require(steps <= {5, 6}, f"numbers of step {steps} were drawn at steps 5 and 6")
        seeds = set(np.unique(low).tolist()), set(np.unique(high).tolist())
        require(seeds == ({3}, {2**8}), f"numbers of seed words {seeds} were drawn; the seed's are 3 and {2**8}")


@contextmanager
def _watched() -> Iterator[list[tuple[Any, Any]]]:
    """The counters and keys that ``flashspec.rng.philox`` is called with."""
    calls: list[tuple[Any, Any]] = []
    real = rng.philox

    def watched(counter: Any, key: Any) -> Any:
        calls.append((counter, key))
        return real(counter, key)

    setattr(rng, "philox", watched)  # noqa: B010  # a plain assignment to a module's function has no type
    try:
        yield calls
    finally:
        setattr(rng, "philox", real)  # noqa: B010  # as above


def key_independent(subject: Subject) -> None:
    """Choices tell nothing about the numbers that draft, judge and draw: 2,000 seeds, chi-square at 1e-6."""
    selector, arms, seeds, step = subject.build(), arms_of(), 2000, 7
    state = selector.init(arms)
    chosen = np.array([taken(selector, state, (seed, step), arms)[0] for seed in range(seeds)])
    stream = Stream.of(range(seeds), [step] * seeds)
    for domain in OTHERS:
        for index in (0, 1):
            for word, values in enumerate(rng.block(stream, domain, np.full(seeds, index, np.uint32))[:2]):
                quarter = (np.asarray(values) >> np.uint32(30)).astype(np.int64)
                table = np.array([np.bincount(quarter[chosen == arm], minlength=4) for arm in set(chosen.tolist())])
                table = table[table.sum(1) >= 20]
                if len(table) < 2:
                    continue
                value = float(stats.chi2_contingency(table).pvalue)
                told = f"the arm depends on word {word} of place {index} of domain {domain.name} (p-value {value:.1g})"
                require(value > ALARM / (4 * len(OTHERS)), told)


CHECKS = (
    Check("key-only", key_only),
    Check("key-counts", key_counts),
    Check("key-domain", key_domain),
    Check("key-independent", key_independent),
)
