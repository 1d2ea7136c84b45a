"""Facts about the randomness of selectors."""

import numpy as np
import pytest

from flashspec import rng
from flashspec.contract import Domain
from flashspec.selectors import Arms, noise

ARMS = Arms.of({"ngram": (1, 3), "model": (2,)})


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.4), (0.3, 2.0), (1.0, 1.0), (2.5, 0.7), (40.0, 60.0), (3000.0, 900.0)])
def test_beta_draws_follow_the_beta_law(a: float, b: float) -> None:
    """20,000 draws against as many of NumPy's: Kolmogorov-Smirnov at alpha 1e-4 (seeds fixed), and the mean.

    Values below 1e-250 are one atom: there the two programs round differently.
    """
    size = 20_000
    lanes = noise.Lanes(np.arange(size, dtype=np.uint64), 3, np.full(size, 17), np.full(size, 2))
    ours = noise.beta(lanes, np.full(size, a), np.full(size, b))
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
    lanes = noise.Lanes(np.arange(50_000, dtype=np.uint64), 0, np.full(50_000, 5), np.full(50_000, 1))
    drawn = noise.beta(lanes, np.ones(50_000), np.ones(50_000))
    assert abs(drawn.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / 50_000)


def test_selection_uses_its_own_philox_domain() -> None:
    """The words are those of domain SELECT, and of no other domain."""
    lanes = noise.arm_lanes((2**40 + 7, 12), ARMS)
    counter = (ARMS.length, 12, ARMS.lanes[ARMS.draft])
    key = (np.uint32(7), np.uint32(2**8))
    given = noise.words(lanes, 0)[0]
    assert np.array_equal(given, rng.philox((*counter, Domain.SELECT), key)[0])
    for other in set(Domain) - {Domain.SELECT}:
        assert not np.array_equal(given, rng.philox((*counter, other), key)[0])


def test_noise_of_a_draft_does_not_depend_on_its_neighbours() -> None:
    """A lane is the draft's name and the length, whatever stands beside it."""
    other = Arms.of({"model": (1, 2), "suffix": (5,)})
    ours = dict(zip(ARMS.names, noise.uniform(noise.arm_lanes((9, 4), ARMS)), strict=True))
    theirs = dict(zip(other.names, noise.uniform(noise.arm_lanes((9, 4), other)), strict=True))
    assert ours["model/2"] == theirs["model/2"]
    assert len(set(ours.values())) == len(ours)


def test_a_batch_of_seeds_draws_what_each_seed_draws() -> None:
    """Leading dimensions change nothing, even where some lanes need more trials than others."""
    seeds = np.arange(300, dtype=np.uint64)
    a = np.full((300, len(ARMS)), 1.0)
    whole = noise.beta(noise.arm_lanes((seeds, 1), ARMS), a, a)
    single = [noise.beta(noise.arm_lanes((int(s), 1), ARMS), a[0], a[0]) for s in seeds]
    assert np.array_equal(whole, np.stack(single))


def test_lanes_that_need_more_than_four_trials_are_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one trial at a time, rejections are frequent, and the draws are the same bits."""
    seeds = np.arange(400, dtype=np.uint64)
    a = np.full((400, len(ARMS)), 1.3)
    four = noise.beta(noise.arm_lanes((seeds, 1), ARMS), a, a)
    monkeypatch.setattr(noise, "_TRIALS", 1)
    one = noise.beta(noise.arm_lanes((seeds, 1), ARMS), a, a)
    assert np.array_equal(four, one)
