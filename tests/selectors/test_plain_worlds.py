"""Gates in the worlds of plain rewards: switching arms, many arms, and what each new algorithm is known for.

Seeds are fixed, so a red is a change of the program. The numbers in docstrings are means over 60
seeds unless said otherwise; T is 10,000.
"""

import functools

import attrs
import numpy as np
import pytest

from flashspec.errors import ContractError
from flashspec.selectors import get
from flashspec.selectors.plain import SEED, SWITCHING, Rates, one_best
from flashspec.selectors.simulate import plain_arms, regret_curve
from flashspec.selectors.types import F64

STAYS = (200, 500)


@functools.cache
def lost(name: str, rates: Rates, seeds: int = 60) -> F64:
    """Regret of each seed after 10,000 steps."""
    return np.asarray(regret_curve(get(name), range(seeds), rates).lost[-1])


def test_adaptive_thompson_follows_switching_arms() -> None:
    """Mean regret at most 470 (measured 462, standard deviation of a seed 67)."""
    assert lost("adaptive_ts", SWITCHING).mean() <= 470


def test_full_information_follows_switching_arms() -> None:
    """The mixture of rates that sees every arm: at most 175 (measured 166, standard deviation 14)."""
    assert 150 <= lost("mixture", SWITCHING).mean() <= 175


def test_the_switching_world_really_switches() -> None:
    """Control: what never forgets is lost in it: UCB1 above 500 (614), KL-UCB above 600 (761)."""
    assert lost("ucb1", SWITCHING).mean() > 500
    assert lost("kl_ucb", SWITCHING, 20).mean() > 600


def test_kl_ucb_is_far_below_ucb1_where_nothing_changes() -> None:
    """Mean in [22, 30] (measured 26.2, standard deviation of a seed 8.7); UCB1 is at 100."""
    assert 22 <= lost("kl_ucb", SEED).mean() <= 30


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("hedge_fixed_share", 76, 86),
        ("d_ucb", 510, 550),
        ("sw_ucb", 290, 335),
        ("mixture", 14, 19),
    ],
)
def test_the_others_have_the_regret_that_they_are_known_for(name: str, low: float, high: float) -> None:
    """Two-sided where nothing changes: 80.9, 530.8, 312.0 and 16.5 were measured; a gate is five standard errors."""
    assert low <= lost(name, SEED).mean() <= high


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "rates", "low", "high"),
    [
        ("exp3s", SEED, 344, 372),
        ("tsallis_inf", SEED, 28, 42),
        ("d_ts", SEED, 378, 414),
        ("hedge_fixed_share", SWITCHING, 370, 400),
        ("d_ucb", SWITCHING, 690, 735),
        ("d_ts", SWITCHING, 838, 892),
        ("exp3s", SWITCHING, 1550, 1620),
        ("thompson", SWITCHING, 1500, 1820),
        ("adaptive_ts", SWITCHING, 400, 505),
    ],
)
def test_wide_two_sided_gates(name: str, rates: Rates, low: float, high: float) -> None:
    """Measured: 358.0, 34.7, 395.7 without changes; 384.8, 713.9, 864.6, 1584, 1764, 461.9 with them."""
    assert low <= lost(name, rates).mean() <= high


def test_regret_of_full_information_grows_slowly_with_the_number_of_arms() -> None:
    """From 4 to 32 arms that switch, at most twice the regret (measured 1.8: 173 and 311, 30 seeds)."""
    few, many = (lost("mixture", one_best(count, STAYS), 30).mean() for count in (4, 32))
    assert many <= 2.0 * few


@pytest.mark.nightly
def test_regret_of_bandits_grows_faster() -> None:
    """Control: UCB1 at 2.9 times (639 and 1901), 30 seeds."""
    few, many = (lost("ucb1", one_best(count, STAYS), 30).mean() for count in (4, 32))
    assert many > 2.5 * few


def test_a_switching_path_stays_and_changes_as_told() -> None:
    """Every stay but the last is 200 to 500 steps, every change is to another phase, each seed has its own."""
    table = SWITCHING.chances(range(3), 5_000)
    assert table.shape == (5_000, 3, 3)
    for seed in range(3):
        changes = np.flatnonzero((np.diff(table[:, seed], axis=0) != 0).any(1)) + 1
        stays = np.diff([0, *changes])
        assert ((stays >= 200) & (stays <= 500)).all()
        assert 9 <= len(changes) <= 25
    assert not np.array_equal(table[:, 0], table[:, 1])


def test_a_curve_ends_at_the_regret_and_never_falls() -> None:
    """Points ascend to the last step; shares of arms sum to 1 at each."""
    curve = regret_curve(get("ucb1"), range(4), SWITCHING, 1_000)
    assert curve.step[-1] == 1_000
    assert (np.diff(curve.lost, axis=0) >= 0).all()
    assert curve.share.sum(1) == pytest.approx(np.ones(len(curve.step)))


@pytest.mark.parametrize("name", ["hedge_fixed_share", "mixture"])
def test_full_information_does_not_depend_on_the_arm_played(name: str) -> None:
    """``update_all`` sees every arm's reward: the regret of two seeds is that of a loop that plays nothing."""
    selector, (arms, cost) = get(name), plain_arms(3)
    assert selector.update_all is not None
    state = selector.init(arms)
    draws, rates = np.random.default_rng(1).random((300, 3)), np.array(SEED.phases[0])
    total = 0.0
    for step in range(300):
        arm, _ = selector.select(state, (1, step), [0, 0, 0], cost, np.ones(3, bool))
        state = selector.update_all(state, (draws[step] < rates).astype(np.float64))
        total += 0.7 - rates[arm]
    assert total == pytest.approx(regret_curve(selector, [0, 1], SEED, 300).lost[-1, 1], abs=1e-9)


@pytest.mark.parametrize(
    ("phases", "stay", "words"),
    [
        ((), None, "at least one number"),
        (((0.5, 1.5),), None, r"1\.5"),
        (((0.5,), (0.5, 0.1)), None, "as many in each"),
        (((0.5,), (0.4,)), (5, 2), "stays of"),
        (((0.5,),), (2, 5), "two phases or more"),
    ],
)
def test_worlds_that_cannot_be_are_refused(phases: tuple[tuple[float, ...], ...], stay: object, words: str) -> None:
    """No phase, rates outside [0, 1], sizes that differ, stays the wrong way round."""
    with pytest.raises(ContractError, match=words):
        Rates(phases, stay)  # type: ignore[arg-type]  # some of it is wrong on purpose


def test_no_seed_is_no_experiment() -> None:
    """Zero seeds and zero steps are refused."""
    with pytest.raises(ContractError, match="0 seeds"):
        regret_curve(get("ucb1"), [], SEED)
    with pytest.raises(ContractError, match="0 steps"):
        regret_curve(get("ucb1"), [1], SEED, 0)


def test_many_arms_have_one_best() -> None:
    """One arm at 0.8 in every phase, another one in each."""
    rates = one_best(5, STAYS)
    assert [phase.index(0.8) for phase in rates.phases] == [0, 1, 2, 3, 4]
    assert attrs.evolve(rates, stay=None).chances([0], 3).shape == (3, 1, 5)
    assert one_best(1, STAYS).stay is None
