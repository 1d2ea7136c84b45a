"""Statistics of proposals: tokens follow the law that travels with them, place by place, independent of all else.

Every verdict has a false-alarm rate of at most 1e-6 in all; seeds are fixed, so that a red is the same every time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from scipy import stats

from flashspec import rng
from flashspec.contract import Domain, Draw, Sampling, Stream
from flashspec.drafts import Draft
from flashspec_conformance.case import F64
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.drafters.context import VOCAB, toy
from flashspec_conformance.drafters.proposals import rows
from flashspec_conformance.drafters.shape import text_of
from flashspec_conformance.drafters.subject import SAMPLED, Subject

ALARM = 1e-6
SEEDS = 2000
CROWD = 100
"""Draws that share prefix and law before they are compared with it."""
SAMPLINGS = (
    Sampling.of(1, temperature=0.7, top_k=3),
    Sampling.of(1, temperature=1.3, top_k=4),
    Sampling.of(1, temperature=1.3),
)
TEXT = text_of(23)


@attrs.frozen(eq=False)
class Group:
    """Draws of one place after one prefix with one law."""

    place: int
    prefix: tuple[int, ...]
    law: F64
    counts: F64


def drafts_of(subject: Subject, length: int, sampling: Sampling, seeds: int = SEEDS) -> list[Draft]:
    """One draft per seed after the same text."""
    drafter = subject.make()
    found = []
    for seed in range(seeds):
        stream = Stream.of([seed], [len(TEXT)])
        found.append(drafter.propose(drafter.start(TEXT), length, sampling, stream)[0])
    return found


def groups(drafts: Sequence[Draft]) -> Iterator[Group]:
    """Draws by place, prefix and law, where there are at least ``CROWD``."""
    counts: dict[Any, F64] = defaultdict(lambda: np.zeros(VOCAB))
    laws: dict[Any, F64] = {}
    for draft in drafts:
        for place, law in enumerate(rows(draft)):
            key = (place, tuple(draft.tokens[:place]), np.round(law, 9).tobytes())
            counts[key][draft.tokens[place]] += 1
            laws[key] = law
    for key, count in counts.items():
        if count.sum() >= CROWD:
            yield Group(key[0], key[1], laws[key], count)


def follows(group: Group, tests: int) -> None:
    """The draws of a group follow its law: none outside, chi-square over cells of 5 expected draws and more."""
    total = group.counts.sum()
    where = f"place {group.place}" + (f" after {group.prefix}" if group.prefix else "")
    outside = np.flatnonzero((group.law <= 0) & (group.counts > 0))
    require(not outside.size, f"{where}: id {outside[:1]} was proposed, its q is 0")
    expected = total * group.law
    large = expected >= 5
    seen = np.array([*group.counts[large], group.counts[~large].sum()])
    right = np.array([*expected[large], expected[~large].sum()])
    if right[-1] < 5:  # too few to judge: they join the largest cell
        most = int(right[:-1].argmax())
        seen[most], right[most] = seen[most] + seen[-1], right[most] + right[-1]
        seen, right = seen[:-1], right[:-1]
    if len(right) < 2:
        return
    value = float(stats.chisquare(seen, right * seen.sum() / right.sum()).pvalue)
    draws, law = group.counts.astype(int).tolist(), np.round(group.law, 4).tolist()
    require(value > ALARM / tests, f"{where}: {int(total)} draws {draws} against q {law}, p-value {value:.1g}")


def histogram(subject: Subject) -> None:
    """Tokens follow the q that is returned with them, at temperatures 0.7 and 1.3, with and without top-k."""
    for sampling in SAMPLINGS:
        found = list(groups(drafts_of(subject, 1, sampling)))
        for group in found:
            follows(group, len(SAMPLINGS) * len(found))


def stopping(subject: Subject) -> None:
    """Whether a token is there depends on what came before it, never on itself: those that are there follow their q.

    Given the tokens before it, each token of a draft of up to four is compared with its law. A drafter that drops
    a token after seeing it fails, and so does one that uses the same noise at two places.
    """
    for sampling in SAMPLINGS[:2]:
        found = list(groups(drafts_of(subject, 4, sampling, 1200)))
        for group in found:
            follows(group, 2 * len(found))


def rounds_apart(subject: Subject) -> None:
    """Rounds have noise of their own: the same text at another position is drafted independently."""
    drafter, pairs = subject.make(), np.zeros((VOCAB, VOCAB))
    for seed in range(SEEDS):
        first, second = (
            drafter.propose(drafter.start(TEXT), 1, SAMPLINGS[2], Stream.of([seed], [place]))[0].tokens
            for place in (len(TEXT), len(TEXT) + 1)
        )
        if first and second:
            pairs[first[0], second[0]] += 1
    value = _independence(pairs)
    require(value > ALARM, f"first tokens of two rounds depend on each other (p-value {value:.1g})")


def coins_apart(subject: Subject) -> None:
    """Tokens tell nothing about the coins that judge them and the numbers that draw from the residual or a bonus."""
    found = drafts_of(subject, 2, SAMPLINGS[2])
    stream = Stream.of(range(SEEDS), [len(TEXT)] * SEEDS)
    domains = (Domain.ACCEPT, Domain.RESIDUAL, Domain.BONUS)
    cases = list(itertools.product(domains, (0, 1), (0, 1)))
    for domain, place, word in cases:
        values = np.asarray(rng.block(stream, domain, np.full(SEEDS, place, np.uint32))[word]) >> np.uint32(30)
        table = np.zeros((VOCAB, 4))
        for draft, quarter in zip(found, values.tolist(), strict=True):
            if len(draft.tokens) > place:
                table[draft.tokens[place], quarter] += 1
        value = _independence(table)
        told = f"the token at place {place} depends on word {word} of that place of {domain.name} (p-value {value:.1g})"
        require(value > ALARM / len(cases), told)


def draws(subject: Subject) -> None:
    """The context's backend is asked for numbers of the domain DRAFT, one place of the round after the other."""
    heard: list[Any] = []
    drafter = subject.build(toy(heard.append))
    stream = Stream.of([2**40 + 9], [len(TEXT)])
    draft, _ = drafter.propose(drafter.start(TEXT), 4, SAMPLINGS[2], stream)
    places = []
    for draw in heard:
        if not isinstance(draw, Draw):
            continue  # numbers of its own: the statistics judge them
        require(draw.domain == Domain.DRAFT, f"it drew from domain {Domain(draw.domain).name}; allowed: DRAFT")
        numbers = [int(np.asarray(x)[0]) for x in (draw.stream.seed, draw.stream.position, draw.stream.sequence)]
        given = [2**40 + 9, len(TEXT), 0]
        require(numbers == given, f"it drew with seed, position, sequence {numbers}; it was given {given}")
        places.append(int(draw.index))
    require(len(set(places)) == len(places), f"{len(draft.tokens)} tokens were drawn at places {places}, some twice")


def _independence(table: F64) -> float:
    """The p-value of independence of rows and columns, rare ones left out; 1 where nothing varies."""
    table = table[table.sum(1) >= 20][:, table.sum(0) >= 20]
    if min(table.shape) < 2 or not (table.sum(0) > 0).all():
        return 1.0
    return float(stats.chi2_contingency(table).pvalue)


CHECKS = (
    Check("draws", draws),
    Check("histogram", histogram),
    Check("stopping", stopping),
    Check("rounds-apart", rounds_apart, SAMPLED),
    Check("coins-apart", coins_apart, SAMPLED),
)
