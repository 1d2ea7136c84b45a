"""Drawing from masses with one uniform: flat and tiled choice are one function."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from flashspec_spec.sampling import TILE, edge_margin, inverse_cdf, tiled_inverse_cdf
from flashspec_spec.uniforms import sampling_uniform

Draw = Callable[[Sequence[Fraction], Fraction], int]

QUARTERS = [Fraction(0), Fraction(1, 4), Fraction(0), Fraction(1, 2), Fraction(1, 4), Fraction(0)]
DRAWS = pytest.mark.parametrize("draw", [inverse_cdf, tiled_inverse_cdf])


@DRAWS
@pytest.mark.clause("SMP-1", "SMP-2")
@pytest.mark.parametrize(
    ("u", "token"),
    [
        (Fraction(0), 1),
        (Fraction(1, 4) - Fraction(1, 10**30), 1),
        (Fraction(1, 4), 3),
        (Fraction(3, 4) - Fraction(1, 10**30), 3),
        (Fraction(3, 4), 4),
        (1 - Fraction(1, 10**30), 4),
    ],
)
def test_draws_are_half_open_and_skip_tokens_without_mass(draw: Draw, u: Fraction, token: int) -> None:
    """At an edge of the CDF the next token of positive mass is chosen, never one of mass 0."""
    assert draw(QUARTERS, u) == token


@DRAWS
@pytest.mark.clause("SMP-1")
def test_masses_need_not_sum_to_one(draw: Draw) -> None:
    """The threshold is U times the total."""
    assert draw([7 * mass for mass in QUARTERS], Fraction(1, 4)) == 3


@pytest.mark.clause("SMP-3")
@pytest.mark.parametrize("size", [1, 63, TILE - 1, TILE, TILE + 1, 2 * TILE, 2500])
def test_tiled_and_flat_choice_agree(size: int) -> None:
    """At every edge of the CDF, just below it, and between edges, the choice is the same."""
    source = random.Random(size)
    masses = [Fraction(max(source.randint(-5, 9), 0)) for _ in range(size - 1)] + [Fraction(3)]
    total = sum(masses, Fraction(0))
    edges = [sum(masses[:v], Fraction(0)) / total for v in {0, 1, size // 2, size - 1, min(size - 1, TILE)}]
    tries = [u for edge in edges for u in (edge, edge - Fraction(1, 10**9), edge + Fraction(1, 10**9))]
    tries += [sampling_uniform(source.getrandbits(64)) for _ in range(10)]
    for u in tries:
        if 0 <= u < 1:
            assert tiled_inverse_cdf(masses, u) == inverse_cdf(masses, u)


@pytest.mark.clause("SMP-3", "SMP-2")
def test_a_tile_without_mass_is_never_chosen() -> None:
    """Mass in the first and third tile only: the second is passed over at its edge."""
    masses = [Fraction(0)] * (2 * TILE + 5)
    masses[TILE - 1] = masses[2 * TILE] = Fraction(1)
    assert tiled_inverse_cdf(masses, Fraction(1, 2)) == 2 * TILE


@DRAWS
@pytest.mark.parametrize("u", [Fraction(-1, 9), Fraction(1)])
def test_uniforms_outside_the_unit_interval_are_refused(draw: Draw, u: Fraction) -> None:
    """0 is allowed and 1 is not."""
    with pytest.raises(ValueError, match="allowed: 0 <= u < 1"):
        draw(QUARTERS, u)


@DRAWS
def test_nothing_to_draw_from_is_refused(draw: Draw) -> None:
    """No token is invented where there is no mass."""
    with pytest.raises(ValueError, match="nothing to draw from"):
        draw([Fraction(0)] * 3, Fraction(1, 2))


def test_edge_margin_is_the_distance_in_mass() -> None:
    """The nearest edge counts; the ends of the whole CDF count only for residuals."""
    u = Fraction(1, 8)
    assert edge_margin(QUARTERS, u, 1, inner=True) == 0.125
    assert edge_margin(QUARTERS, Fraction(1, 100), 1, inner=True) == 0.24
    assert edge_margin(QUARTERS, Fraction(1, 100), 1, inner=False) == 0.01
    assert edge_margin([2 * mass for mass in QUARTERS], u, 1, inner=True) == 0.25
    assert edge_margin([Fraction(1)], u, 0, inner=True) == float("inf")
