"""The chain rules with their coins integrated: every way a trial can end, its probability, and the noise left.

A judge decides one trial whose first draft is at position ``at``. With fresh noise it is a rule for
``theorems.emitted_law``; with noise that is carried on it is one round of ``rounds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.acceptance import acceptance_probability
from flashspec_spec.block import accept_share, block_residual, next_coverage
from flashspec_spec.judged import q_of
from flashspec_spec.noise import Keys, Noise, cells, flip
from flashspec_spec.proposals import NO_DRAFT
from flashspec_spec.residual import after_rejection
from flashspec_spec.theorems import Emission, Law, Tokens, Trial, normalised

End: TypeAlias = tuple[Tokens, Fraction, Noise]
Judge: TypeAlias = Callable[[Trial, int, Noise, Keys], Iterator[End]]


def live(trial: Trial) -> Tokens:
    """The drafts before the chain's end."""
    return trial.drafts[: trial.drafts.index(NO_DRAFT)] if NO_DRAFT in trial.drafts else trial.drafts


def q_row(trial: Trial, j: int) -> Law:
    """The q that judges draft ``j``."""
    return q_of(trial.proposals[j], trial.drafts[j], len(trial.p[j]))[0]


def ending(prefix: Tokens, law: Law, weight: Fraction, noise: Noise, key: tuple[str, int]) -> Iterator[End]:
    """A prefix followed by one token of a law."""
    for token, share, left in cells(noise, key, law):
        yield (*prefix, token), weight * share, left


def token_judge(trial: Trial, at: int, noise: Noise, keys: Keys) -> Iterator[End]:
    """The token rule (ACC, RES, BON)."""
    drafts, reached = live(trial), Fraction(1)
    for j, draft in enumerate(drafts):
        p, q = trial.p[j], q_row(trial, j)
        survived = None
        for accepted, share, left in flip(noise, (keys.coin, at + j), acceptance_probability(p[draft], q[draft])):
            if accepted:
                survived = share, left
            else:
                rest = normalised(after_rejection(p, q)[0])
                yield from ending(drafts[:j], rest, reached * share, left, (keys.sample, at + j))
        if survived is None:
            return
        reached, noise = reached * survived[0], survived[1]
    yield from ending(drafts, trial.p[len(drafts)], reached, noise, (keys.sample, at + len(drafts)))


def _prefix_test(trial: Trial, i: int, coverage: Fraction, last: bool) -> tuple[Fraction, Law]:
    """The probability of accepting ``i`` drafts when that is tried, and the law of the token after them."""
    if last:
        return coverage, trial.p[i]
    left = block_residual(coverage, trial.p[i], q_row(trial, i))
    mass = sum(left, Fraction(0))
    return accept_share(coverage, mass), normalised(left) if mass else trial.p[i]


def block_judge(trial: Trial, at: int, noise: Noise, keys: Keys) -> Iterator[End]:
    """The block rule (BLK): from the longest prefix down, each with the coin of its last draft."""
    drafts, reached, covered = live(trial), Fraction(1), [Fraction(1)]
    for j, draft in enumerate(drafts):
        covered.append(next_coverage(covered[-1], trial.p[j][draft], q_row(trial, j)[draft]))
    for i in range(len(drafts), -1, -1):
        accept, law = _prefix_test(trial, i, covered[i], i == len(drafts))
        failed = None
        for accepted, share, left in flip(noise, (keys.coin, at + i - 1), accept):
            if accepted:
                yield from ending(drafts[:i], law, reached * share, left, (keys.sample, at + i))
            else:
                failed = share, left
        if failed is None:
            return
        reached, noise = reached * failed[0], failed[1]


def path_judge(trial: Trial, at: int, noise: Noise, keys: Keys, j: int = 0) -> Iterator[End]:
    """The path rule (PTH): a token from each row, until it differs from the draft."""
    drafts = live(trial)
    for token, share, left in cells(noise, (keys.sample, at + j), trial.p[j]):
        if j == len(drafts) or token != drafts[j]:
            yield (*drafts[:j], token), share, left
        else:
            for tokens, weight, later in path_judge(trial, at, left, keys, j + 1):
                yield tokens, share * weight, later


def block_rule(trial: Trial) -> Iterator[Emission]:
    """:func:`block_judge` of one round with its own randomness."""
    return ((tokens, weight) for tokens, weight, _ in block_judge(trial, 0, {}, Keys()))


def path_rule(trial: Trial) -> Iterator[Emission]:
    """:func:`path_judge` of one round whose noise is independent of the drafts."""
    return ((tokens, weight) for tokens, weight, _ in path_judge(trial, 0, {}, Keys()))
