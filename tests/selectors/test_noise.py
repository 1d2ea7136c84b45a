"""Facts about the randomness of selectors."""

import numpy as np
import pytest

from flashspec import rng
from flashspec.contract import Domain
from flashspec.selectors import Arms, noise
from flashspec.selectors.arrays import NUMPY

ARMS = Arms.of({"ngram": (1, 3), "model": (2,)})


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.4), (0.3, 2.0), (1.0, 1.0), (2.5, 0.7), (40.0, 60.0), (3000.0, 900.0)])
def test_beta_draws_follow_the_beta_law(a: float, b: float) -> None:
    """20,000 draws against as many of NumPy's: Kolmogorov-Smirnov at alpha 1e-4 (seeds fixed), and the mean.

    Values below 1e-250 are one atom: there the two programs round differently.
    """
    size = 20_000
    lanes = noise.Lanes(np.arange(size, dtype=np.uint64), np.array(3), np.full(size, 17), np.full(size, 2))
    ours = noise.beta(ARMS.pool, lanes, np.full(size, a), np.full(size, b))
    theirs = np.random.default_rng(5).beta(a, b, size)
    assert ours.min() >= 0.0
    assert ours.max() <= 1.0
    grid = np.sort(np.maximum(np.concatenate((ours, theirs)), 1e-250))
    ranks = [np.searchsorted(np.sort(np.maximum(x, 1e-250)), grid, side="right") for x in (ours, theirs)]
    assert np.abs(ranks[0] - ranks[1]).max() / size < 2.23 * np.sqrt(2 / size)
    spread = np.sqrt(a * b / (a + b + 1)) / (a + b)
    assert abs(ours.mean() - a / (a + b)) < 4.5 * spread / np.sqrt(size)


def test_the_two_gammas_of_a_draw_are_independent() -> None:
    """Beta(1, 1) from correlated Gammas would not be uniform: its variance is 1/12 within 5 standard errors."""
    lanes = noise.Lanes(np.arange(50_000, dtype=np.uint64), np.array(0), np.full(50_000, 5), np.full(50_000, 1))
    drawn = noise.beta(ARMS.pool, lanes, np.ones(50_000), np.ones(50_000))
    assert abs(drawn.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / 50_000)


def test_selection_uses_its_own_philox_domain() -> None:
    """The words are those of domain SELECT, and of no other domain."""
    lanes = noise.arm_lanes(ARMS.pool, (np.array(2**40 + 7), np.array(12)))
    counter = (ARMS.length, 12, ARMS.lanes[ARMS.draft])
    key = (np.uint32(7), np.uint32(2**8))
    given = noise.uniform(NUMPY, lanes)
    assert np.array_equal(given, rng.unit32(rng.philox((*counter, Domain.SELECT), key)[0]))
    for other in set(Domain) - {Domain.SELECT}:
        assert not np.array_equal(given, rng.unit32(rng.philox((*counter, other), key)[0]))


def test_noise_of_a_draft_does_not_depend_on_its_neighbours() -> None:
    """A lane is the draft's name and the length, whatever stands beside it."""
    other = Arms.of({"model": (1, 2), "suffix": (5,)})
    key = (np.array(9), np.array(4))
    ours = dict(zip(ARMS.names, noise.uniform(NUMPY, noise.arm_lanes(ARMS.pool, key)), strict=True))
    theirs = dict(zip(other.names, noise.uniform(NUMPY, noise.arm_lanes(other.pool, key)), strict=True))
    assert ours["model/2"] == theirs["model/2"]
    assert len(set(ours.values())) == len(ours)


def test_a_batch_of_seeds_draws_what_each_seed_draws() -> None:
    """Leading dimensions change nothing, even where some lanes need more trials than others."""
    seeds = np.arange(300, dtype=np.uint64)
    a = np.full((300, len(ARMS)), 1.0)
    whole = noise.beta(ARMS.pool, noise.arm_lanes(ARMS.pool, (seeds, np.array(1))), a, a)
    single = [noise.beta(ARMS.pool, noise.arm_lanes(ARMS.pool, (s, np.array(1))), a[0], a[0]) for s in seeds]
    assert np.array_equal(whole, np.stack(single))


def test_a_lane_whose_trials_are_all_rejected_takes_the_median() -> None:
    """Rejected trials only: Gamma(3.0) is 3 - 1/3 whatever the normals; else the first accepted trial counts."""
    shape, normals = np.array([3.0]), np.array([[-1.0, 0.3, 0.2, 0.1]])
    never = noise.Source(normals, np.zeros((1, 4)), np.zeros(1))
    assert noise.log_gammas(NUMPY, shape, never) == pytest.approx(np.log(3.0 - 1 / 3))
    second = noise.Source(normals, np.array([[0.0, -9.0, -9.0, -9.0]]), np.zeros(1))
    v = 1.0 + 0.3 / np.sqrt(9.0 * (3.0 - 1 / 3))
    assert noise.log_gammas(NUMPY, shape, second) == pytest.approx(np.log((3.0 - 1 / 3) * v**3))


def test_a_trial_is_rejected_as_rarely_as_the_bound_says() -> None:
    """The chance of a rejection, integrated over the normal, is largest at shape 1 and below 0.049 there."""
    x = np.linspace(-12, 12, 200_001)
    density = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)

    def rejected(shape: float) -> float:
        d = shape - 1 / 3
        v = (1 + x / np.sqrt(9 * d)) ** 3
        good = np.where(v > 0, v, 1.0)
        accept = np.where(v > 0, np.exp(np.minimum(0.0, 0.5 * x * x + d - d * good + d * np.log(good))), 0.0)
        return 1.0 - float((accept * density).sum() * (x[1] - x[0]))

    chances = [rejected(shape) for shape in (1.0, 1.1, 1.5, 2.0, 5.0, 50.0)]
    assert chances == sorted(chances, reverse=True)
    assert 0.045 < chances[0] < 0.049


def test_a_shape_that_is_no_number_gives_no_number() -> None:
    """NaN comes back at once, and its neighbours are as without it."""
    lanes = noise.arm_lanes(ARMS.pool, (np.array(3), np.array(1)))
    a = np.full(len(ARMS), 1.3)
    broken = np.where(np.arange(len(ARMS)) == 1, np.nan, a)
    clean, drawn = noise.beta(ARMS.pool, lanes, a, a), noise.beta(ARMS.pool, lanes, broken, a)
    assert np.isnan(drawn).tolist() == [False, True, False, False]
    assert np.array_equal(drawn[~np.isnan(drawn)], clean[[0, 2, 3]])
