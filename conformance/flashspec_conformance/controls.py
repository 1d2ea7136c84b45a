"""Negative controls: known wrong rules with their coins integrated, to state what the law tests resolve.

Each is a rule for ``flashspec_spec.theorems``: a trial in, emissions with probabilities out. Most are
the token rule with one step exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import attrs

from flashspec_spec.acceptance import acceptance_probability
from flashspec_spec.judged import q_of
from flashspec_spec.theorems import Emission, Law, Rule, Trial, continued, normalised

Masses = Callable[[Law, Law], Law]


def residual(p: Law, q: Law) -> Law:
    """``[p - q]+``, or p where that has no mass."""
    masses = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    return masses if any(masses) else p


def softmax_residual(p: Law, q: Law) -> Law:
    """Exponentials of the residual."""
    return [Fraction(math.exp(max(a - b, Fraction(0)))) for a, b in zip(p, q, strict=True)]


@attrs.frozen
class Steps:
    """The steps of the token rule, exchangeable."""

    accept: Callable[[Fraction, Fraction], Fraction] = acceptance_probability
    masses: Masses = residual
    row: Callable[[int], int] = lambda j: j
    """The target row whose residual replaces draft j."""
    bonus: int = -1
    """The row that the bonus is drawn from."""
    first_judged: int = 0

    def __call__(self, trial: Trial) -> Iterator[Emission]:
        """Every way to end."""
        reached = Fraction(1)
        for j, draft in enumerate(trial.drafts):
            q = _q(trial, j)
            accepted = self.accept(trial.p[j][draft], q[draft]) if j >= self.first_judged else Fraction(1)
            row = self.row(j)
            left = normalised(self.masses(trial.p[row], _q(trial, row)))
            yield from continued(trial.drafts[:j], left, reached * (1 - accepted))
            reached *= accepted
        yield from continued(trial.drafts, trial.p[self.bonus], reached)


def _q(trial: Trial, j: int) -> Law:
    return q_of(trial.proposals[j], trial.drafts[j], len(trial.p[j]))[0]


def _flags(trial: Trial) -> Iterator[tuple[tuple[bool, ...], Fraction]]:
    shares = [acceptance_probability(trial.p[j][x], _q(trial, j)[x]) for j, x in enumerate(trial.drafts)]
    for number in range(2 ** len(shares)):
        flags = tuple(bool(number >> j & 1) for j in range(len(shares)))
        weight = math.prod((a if f else 1 - a for a, f in zip(shares, flags, strict=True)), start=Fraction(1))
        yield flags, weight


def sum_of_mask(trial: Trial) -> Iterator[Emission]:
    """The accepted length is the number of accept verdicts, not the leading run."""
    for flags, weight in _flags(trial):
        n = sum(flags)
        last = n == len(flags)
        law = trial.p[n] if last else normalised(residual(trial.p[n], _q(trial, n)))
        yield from continued(trial.drafts[:n], law, weight)


def bonus_after_rejection(trial: Trial) -> Iterator[Emission]:
    """A rejection is followed by the residual token and by the bonus."""
    for tokens, weight in Steps()(trial):
        if len(tokens) == len(trial.drafts) + 1:
            yield tokens, weight
        else:
            yield from continued(tokens, trial.p[-1], weight)


def rejected_kept(trial: Trial) -> Iterator[Emission]:
    """The rejected draft stays in the output."""
    for tokens, weight in Steps()(trial):
        whole = len(tokens) == len(trial.drafts) + 1
        yield (tokens if whole else trial.drafts[: len(tokens)]), weight


CONTROLS: dict[str, Rule] = {
    "no residual": Steps(masses=lambda p, q: p),
    "softmax residual": Steps(masses=softmax_residual),
    "absolute residual": Steps(masses=lambda p, q: [abs(a - b) for a, b in zip(p, q, strict=True)]),
    "swapped residual": Steps(masses=lambda p, q: residual(q, p)),
    "residual of row 0": Steps(row=lambda j: 0),
    "inverted ratio": Steps(accept=lambda p, q: acceptance_probability(q, p)),
    "always accepted": Steps(accept=lambda p, q: Fraction(1)),
    "no coin": Steps(accept=lambda p, q: Fraction(p >= q)),
    "bonus of the row before": Steps(bonus=-2),
    "sum of the mask": sum_of_mask,
    "first draft not judged": Steps(first_judged=1),
    "bonus after a rejection": bonus_after_rejection,
    "rejected draft kept": rejected_kept,
}
"""Rules that the law tests must reject for certain."""
