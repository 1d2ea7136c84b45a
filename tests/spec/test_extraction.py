"""The law that ``verify`` really has, read off by bisecting its coins and integers.

The outcome is a step function of each integer, so every threshold is found exactly; what the steps
add up to is compared with the target's law.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from flashspec_spec.law import law
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, dense_row
from flashspec_spec.rows import Row
from flashspec_spec.verify import verify

TARGET = Row([0.4, -0.3, 1.1, 0.0, float("-inf")], 0.7, top_p=0.95)
DRAFT = [0.1, 0.6, -0.2, 0.5, 0.0]


def first_true(test: Callable[[int], bool], stop: int) -> int:
    """The smallest integer below ``stop`` that passes a test which stays true; ``stop`` if none does."""
    low, high = 0, stop
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


def run(proposal: ProposalRow, draft: int, coin: int, integer: int) -> tuple[int, ...]:
    """The tokens of one draft; ``integer`` is the upper 52 bits of the sampling integer."""
    return verify([TARGET, TARGET], [draft], [proposal], [coin], [integer << 12, 0]).tokens


def rejecting_coin(proposal: ProposalRow, draft: int) -> int:
    """The smallest coin that rejects; 2**32 if none does."""
    return first_true(lambda coin: run(proposal, draft, coin, 0)[1] == -1, 2**32)


def edge(proposal: ProposalRow, draft: int, token: int) -> int:
    """The smallest integer that draws ``token`` or a later one after the last coin rejects."""
    return first_true(lambda integer: run(proposal, draft, 2**32 - 1, integer)[0] >= token, 2**52)


def extracted(proposal: ProposalRow, drafted: list[Fraction]) -> list[Fraction]:
    """The first token's law: sum over drafts of q(x) (a(x) [y = x] + (1 - a(x)) r_x(y))."""
    total = [Fraction(0)] * 5
    for x, mass in enumerate(drafted):
        accepted = Fraction(rejecting_coin(proposal, x), 2**32) if mass else Fraction(1)
        total[x] += mass * accepted
        if accepted < 1:
            edges = [edge(proposal, x, y) for y in range(6)]
            for y in range(5):
                total[y] += mass * (1 - accepted) * Fraction(edges[y + 1] - edges[y], 2**52)
    return total


@pytest.mark.clause("LAW-1", "ACC-1", "RES-1", "SMP-1", "UNI-1", "UNI-2")
@pytest.mark.parametrize("kind", ["dense", "one-hot"])
def test_verify_has_the_law_of_its_target(kind: str) -> None:
    """The extracted law differs from the target's by no more than the grid of the integers."""
    drafted = law(DRAFT, 1.3, top_k=4)
    proposal = OneHotRow() if kind == "one-hot" else dense_row(DRAFT, 1.3, top_k=4)
    p = law(TARGET.logits, 0.7, top_p=0.95)
    found = extracted(proposal, drafted)
    assert sum(found) == 1
    assert all(abs(a - b) <= Fraction(1, 2**31) for a, b in zip(found, p, strict=True))


@pytest.mark.clause("LAW-1")
def test_extraction_sees_a_wrong_q() -> None:
    """A q recorded at another temperature moves the extracted law: the method can fail."""
    drafted = law(DRAFT, 1.3, top_k=4)
    wrong = DenseRow(tuple(law(DRAFT, 0.7, top_k=4)))
    p = law(TARGET.logits, 0.7, top_p=0.95)
    assert max(abs(a - b) for a, b in zip(extracted(wrong, drafted), p, strict=True)) > Fraction(1, 100)
