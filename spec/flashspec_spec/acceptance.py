"""When a draft is accepted. ``p`` is the target's law, ``q`` the law that the draft was drawn from."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Sequence


@clause("ACC-1", "MUST", "Under token a draft x is accepted if and only if U * q(x) < p(x), strictly.")
@clause("ACC-2", "MUST", "A draft of p(x) = 0 is always rejected.")
def accepts(u: Fraction, q_x: Fraction, p_x: Fraction) -> bool:
    """Whether the coin ``0 < u < 1`` accepts.

    >>> accepts(Fraction(1, 2), Fraction(1), Fraction(1, 2))
    False
    """
    return u * q_x < p_x


def acceptance_probability(p_x: Fraction, q_x: Fraction) -> Fraction:
    """The measure of the coins that accept: ``min(1, p / q)`` (Leviathan et al., Chen et al. 2023).

    >>> acceptance_probability(Fraction(1, 4), Fraction(1, 2))
    Fraction(1, 2)
    """
    return Fraction(1) if p_x >= q_x and p_x > 0 else p_x / q_x


@clause(
    "OPT-1",
    "SHOULD",
    "A sampled draft is accepted by the token rule with probability sum min(p, q), the most that any exact rule for"
    " one draft reaches.",
    since="1.1",
)
def overlap(p: Sequence[Fraction], q: Sequence[Fraction]) -> Fraction:
    """``sum min(p, q) = 1 - TV(p, q)``: the acceptance of a draft from ``q``.

    >>> overlap([Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)])
    Fraction(1, 2)
    """
    return sum((min(p_v, q_v) for p_v, q_v in zip(p, q, strict=True)), Fraction(0))


def acceptance_margin(u: Fraction, q_x: Fraction, p_x: Fraction) -> float:
    """``|U q - p|`` relative to the larger of the two."""
    return float(abs(u * q_x - p_x) / max(u * q_x, p_x))


@clause(
    "ACC-3",
    "MUST",
    "Under token the accepted drafts are the leading run of accepted verdicts; nothing after the first rejection is"
    " read.",
)
def leading_run(verdicts: Sequence[bool]) -> int:
    """How many verdicts are true before the first that is not.

    >>> leading_run([True, True, False, True])
    2
    """
    return next((place for place, verdict in enumerate(verdicts) if not verdict), len(verdicts))
