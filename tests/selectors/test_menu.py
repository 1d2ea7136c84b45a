"""Each algorithm of the menu against a plain loop that is written from its paper."""

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from flashspec.errors import ContractError, UnknownName
from flashspec.selectors import Arms, Observation, counterfactual, from_spec, get, kl_ucb, noise, single, tsallis_inf
from flashspec.selectors.arrays import NUMPY
from flashspec.selectors.choice import speed_range
from flashspec.selectors.simulate import plain_arms
from flashspec.selectors.types import F64

ARMS, COST = plain_arms(4)
EVERY = np.ones(4, bool)
SPEC = Arms.of({"a": (1, 2, 4), "b": (2,)}, {"a": 0, "b": 0})
Story = list[tuple[int, float]]
stories = st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1)), min_size=1, max_size=25)


def told(name: str, story: Story, **options: Any) -> Any:
    """The state of a selector after plain rewards."""
    selector = get(name, **options)
    assert selector.update_reward is not None
    state = selector.init(ARMS)
    for arm, x in story:
        state = selector.update_reward(state, arm, x)
    return state


def scores(name: str, story: Story, **options: Any) -> F64:
    """What is maximised after plain rewards."""
    state = told(name, story, **options)
    return np.asarray(get(name, **options).scores(state, (5, 6), np.zeros(4, np.int64), COST, EVERY))


def step(arm: int, accepted: int, runs: Any = (None, None, None), **more: Any) -> Observation:
    """A step of ``SPEC``."""
    kept = more.pop("kept", accepted + 1)
    offered = more.pop("offered", int(SPEC.length[arm]))
    return Observation(arm, offered, accepted, kept, runs, 0.1, [0, 0, 0], **more)


@settings(max_examples=40)
@given(stories)
def test_kl_ucb_is_the_upper_end_of_the_interval(story: Story) -> None:
    """n kl(m, u) = ln t at the index, or the index is 1; arms without plays are infinite."""
    got = scores("kl_ucb", story)
    for arm in range(4):
        x = [r for a, r in story if a == arm]
        if not x:
            assert got[arm] == np.inf
            continue
        mean, budget = np.array(np.mean(x)), np.log(len(story)) / len(x)
        want = 1.0
        if float(kl_ucb.divergence(NUMPY, mean, np.array(1.0))) > budget and mean < 1:
            gap = lambda u, m=mean, b=budget: float(kl_ucb.divergence(NUMPY, m, np.array(u))) - b  # noqa: E731
            want = float(optimize.brentq(gap, float(mean), 1.0))
        assert got[arm] == pytest.approx(want, abs=1e-6)


@given(st.floats(0.01, 0.98), st.floats(1, 500), st.floats(1, 500))
def test_the_kl_index_rises_with_the_mean_and_falls_with_the_plays(mean: float, few: float, more: float) -> None:
    """Monotone in m, antitone in n, other arms fixed."""
    few, more = sorted((few, more))
    other = 600.0

    def index(m: float, n: float) -> float:
        # The second arm keeps the number of all plays the same.
        return float(kl_ucb.index(NUMPY, np.array([n, 2 * other - n]), np.array([m * n, 1.0]), 0.0)[0])

    assert index(mean, more) <= index(mean, few) + 1e-9
    assert index(mean, few) <= index(mean + 0.01, few) + 1e-9


@settings(max_examples=40)
@given(stories, st.floats(0.5, 1))
def test_discounted_sums_are_sums_of_powers(story: Story, rate: float) -> None:
    """A reward k steps ago counts rate ** k, in d_ucb's index and in d_ts's state."""
    plays, total = np.zeros(4), np.zeros(4)
    for age, (arm, x) in enumerate(reversed(story)):
        plays[arm] += rate**age
        total[arm] += x * rate**age
    state = told("d_ts", story, rate=rate)
    assert state.plays == pytest.approx(plays)
    assert state.total == pytest.approx(total)
    got, t = scores("d_ucb", story, rate=rate), max(plays.sum(), 1.0)
    for arm in range(4):
        want = np.inf
        if plays[arm]:
            want = total[arm] / plays[arm] + 2 * np.sqrt(0.6 * np.log(t) / plays[arm])
        assert got[arm] == pytest.approx(want)


@settings(max_examples=60)
@given(stories, st.integers(1, 9))
def test_a_window_holds_the_last_rewards_only(story: Story, window: int) -> None:
    """Running sums of the ring are the sums of the last ``window`` rewards."""
    state, last = told("sw_ucb", story, window=window), story[-window:]
    for arm in range(4):
        x = [r for a, r in last if a == arm]
        assert state.plays[arm] == len(x)
        assert state.total[arm] == pytest.approx(sum(x), abs=1e-12)
    got = scores("sw_ucb", story, window=window)
    for arm in np.flatnonzero(state.plays).tolist():
        n = state.plays[arm]
        assert got[arm] == pytest.approx(state.total[arm] / n + np.sqrt(0.6 * np.log(len(last)) / n))


def test_exp3s_learns_as_written() -> None:
    """Loss over probability, exponential weights, a share for all; a loop gives the same weights."""
    weight, story = np.full(4, 0.25), [(0, 0.2), (1, 1.0), (3, 0.0), (3, 0.4)]
    for arm, x in story:
        p = 0.98 * weight / weight.sum() + 0.02 / 4
        weight[arm] *= np.exp(-0.05 * (1 - x) / p[arm])
        weight = (1 - 1e-3) * weight / weight.sum() + 1e-3 / 4
    assert told("exp3s", story).weight == pytest.approx(weight)


def test_tsallis_inf_learns_as_written() -> None:
    """The normaliser solves its equation (Brent), losses have the baseline of 1/2, as a loop has them."""
    loss, story = np.zeros(4), [(0, 0.2), (1, 1.0), (3, 0.0), (3, 0.4), (1, 0.7)]

    def law(t: int) -> F64:
        eta = 4 / np.sqrt(t)
        mass = lambda z: float((4 / (eta * (loss - z)) ** 2).sum()) - 1  # noqa: E731
        z = optimize.brentq(mass, loss.min() - 100, loss.min() - 1e-9, xtol=1e-14)
        return np.asarray(4 / (eta * (loss - z)) ** 2)

    for t, (arm, x) in enumerate(story, start=1):
        p = law(t)
        base = 0.5 * (p >= (4 / np.sqrt(t)) ** 2)
        gain = ((1 - x) - base[arm]) / p[arm]
        loss = loss + base
        loss[arm] += gain
    state = told("tsallis_inf", story)
    assert state.loss == pytest.approx(loss - loss.min())
    assert tsallis_inf.law(ARMS.pool, state, EVERY) == pytest.approx(law(len(story) + 1), abs=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), st.floats(0, 1e6))
def test_the_tsallis_law_is_a_law(loss: list[float], steps: float) -> None:
    """Newton's steps end at probabilities: they sum to 1, more for less loss, none for inactive arms."""
    state = tsallis_inf.Losses(ARMS, np.array(loss), np.array(steps))
    active = np.array([True, False, True, True])
    for mask in (EVERY, active):
        p = tsallis_inf.law(ARMS.pool, state, mask)
        assert p.sum() == pytest.approx(1.0)
        assert (p[~mask] == 0).all()
        order = np.argsort(np.array(loss)[mask])
        assert (np.diff(p[mask][order]) <= 1e-12).all()


def test_hedge_learns_as_written() -> None:
    """exp(eta x) for every arm, then the share."""
    selector, weight = get("hedge_fixed_share"), np.full(4, 0.25)
    assert selector.update_all is not None
    state = selector.init(ARMS)
    for number in range(6):
        x = np.random.default_rng(number).random(4)
        weight *= np.exp(0.4 * x)
        weight = (1 - 0.003) * weight / weight.sum() + 0.003 / 4
        state = selector.update_all(state, x)
    assert state.weight == pytest.approx(weight)


def test_arms_that_hedge_does_not_hear_of_keep_their_weight() -> None:
    """Those that a step tells share what they had together (before the fixed share)."""
    selector = get("hedge_fixed_share", share=1e-12)
    state = selector.update(selector.init(SPEC), step(1, 1, scale=np.ones(5)))
    known = [0, 1]
    assert state.weight[known].sum() == pytest.approx(2 / 5)
    assert state.weight[2:] == pytest.approx(np.full(3, 1 / 5))
    worse = selector.update(selector.init(SPEC), step(1, 0, scale=np.ones(5)))
    assert worse.weight[1] < worse.weight[0]


@pytest.mark.parametrize("name", ["exp3s", "tsallis_inf", "hedge_fixed_share"])
def test_arms_are_drawn_as_often_as_the_propensity_says(name: str) -> None:
    """4,000 keys, one arm not active: chi-square at 1e-6, and the propensity is that of the arm taken."""
    selector = get(name)
    state = told(name, [(0, 0.1), (1, 0.9), (2, 0.3), (1, 0.8)])
    active = np.array([True, True, True, False])
    counts, chance = np.zeros(4), np.full(4, np.nan)
    for number in range(4_000):
        arm, info = selector.select(state, (9, number), [0] * 4, COST, active)
        counts[arm] += 1
        chance[arm] = info.propensity
    assert counts[3] == 0
    assert chance[:3].sum() == pytest.approx(1.0)
    assert stats.chisquare(counts[:3], 4_000 * chance[:3]).pvalue > 1e-6
    assert chance[1] > chance[0]


def test_gumbel_draws_follow_the_gumbel_law() -> None:
    """Kolmogorov and Smirnov over 4,000 lanes."""
    arms = Arms.of({"a": tuple(range(1, 4_001))})
    drawn = noise.gumbel(NUMPY, noise.arm_lanes(arms.pool, (np.array(3), np.array(8))))[1:]
    assert stats.kstest(drawn, "gumbel_r").pvalue > 1e-3


@pytest.mark.parametrize("name", ["exp3s", "tsallis_inf"])
def test_a_step_without_propensity_is_refused_by_name(name: str) -> None:
    """Importance weighting cannot guess it; a step that was cut says nothing and changes nothing."""
    selector = get(name)
    state = selector.init(SPEC)
    with pytest.raises(ContractError, match=f"selector {name} got a step without a propensity"):
        selector.update(state, step(1, 1))
    assert selector.update(state, step(3, 3, kept=2, propensity=0.5)) is state


def test_an_arm_that_was_never_chosen_is_refused() -> None:
    """A plain reward for an arm of no probability: its weight would be infinite. With its propensity it counts."""
    selector = get("tsallis_inf")
    assert selector.update_reward is not None
    state = attrs.evolve(selector.init(ARMS), loss=np.array([0.0, 0.0, 0.0, 1e9]), step=np.array(9.0))
    with pytest.raises(ContractError, match="takes with probability"):
        selector.update_reward(state, 3, 0.5)
    assert np.isfinite(selector.update_reward(state, 3, 0.5, 0.5).loss).all()


@pytest.mark.parametrize("name", ["exp3s", "tsallis_inf"])
def test_a_rarely_taken_arm_counts_more(name: str) -> None:
    """The same loss at a tenth of the probability moves the law further."""
    selector = get(name)
    often, rare = (selector.update(selector.init(SPEC), step(3, 0, propensity=p)) for p in (0.5, 0.05))
    context: Any = [0, 0, 0]
    law = [
        np.array([selector.select(s, (1, n), context, np.ones(5), np.ones(5, bool))[0] == 3 for n in range(400)]).mean()
        for s in (often, rare)
    ]
    assert law[1] <= law[0]


@pytest.mark.parametrize(("propensity", "scale"), [(0.0, None), (1.5, None), (0.5, [1.0]), (0.5, [2.0] * 5)])
def test_propensities_and_scales_that_cannot_be_are_refused(propensity: float, scale: Any) -> None:
    """Zero, above one; a scale of other arms or above one."""
    selector = get("exp3s")
    with pytest.raises(ContractError, match=r"propensity is|scale is"):
        selector.update(selector.init(SPEC), step(1, 1, propensity=propensity, scale=scale))


def test_what_select_saw_comes_back_with_the_step() -> None:
    """The scale of the choice, not that of a later cost table, weighs the reward: equal to the plain reward."""
    selector, cost = get("exp3s"), np.array([1.0, 1.5, 2.0, 3.0, 2.0])
    state = selector.init(SPEC)
    _, info = selector.select(state, (0, 0), [0, 0, 0], cost, np.ones(5, bool))
    assert info.scale is not None
    assert info.scale == pytest.approx(speed_range(SPEC.pool, cost, np.ones(5, bool)))
    got = selector.update(state, step(3, 1, propensity=0.3, scale=info.scale))
    assert selector.update_reward is not None
    want = selector.update_reward(state, 3, 2 / 5 * info.scale[3], 0.3)
    assert np.array_equal(got.weight, want.weight)


def test_counterfactual_rewards_are_told_only_where_they_would_be_told_anyway() -> None:
    """A played draft up to its offer, a scored one up to the kept tokens: a longer arm's early miss is not read."""
    rewards, known = counterfactual.rewards(SPEC, step(2, 1, (None, (1, 0), (0, 1)))) or (None, None)
    assert known is not None
    assert rewards is not None
    assert known.tolist() == [True, True, True, False, True]
    assert rewards[known] == pytest.approx([1.0, 1.0, 2 / 3, 1 / 3])
    assert counterfactual.rewards(SPEC, step(2, 2, kept=1)) is None
    _, known = counterfactual.rewards(SPEC, step(0, 0, (None, (1,), (0,)))) or (None, None)
    assert known is not None
    assert known.tolist() == [True, True, False, False, False]


def test_the_heuristic_goes_up_by_two_and_down_by_one() -> None:
    """From 5, held to 4, the longest arm: down, down, then up to 4 again; never below 1; cut steps do nothing."""
    selector = get("hf_heuristic", draft="a")
    state, seen = selector.init(SPEC), []
    for accepted in (3, 1, 0, 0, 0, 1, 4):
        arm, _ = selector.select(state, (0, 0), [0, 0, 0], np.ones(5), np.ones(5, bool))
        state = selector.update(state, step(arm, min(accepted, int(SPEC.length[arm]))))
        seen.append(float(state.length))
    assert seen == [3.0, 2.0, 1.0, 1.0, 1.0, 3.0, 4.0]
    assert selector.update(state, step(3, 3, kept=2)) is state
    assert selector.update(state, step(4, 0)) is state


def test_tiers_move_after_the_warm_up_every_fifth_step() -> None:
    """Full acceptances of the middle tier move up at the eleventh-to-fifteenth step, misses down again."""
    selector = get("ema_tiers", draft="a")
    state = selector.init(SPEC)
    for count in range(1, 16):
        state = selector.update(state, step(2, 2))
        assert int(state.tier) == (2 if count >= 15 else 1)
    for _ in range(25):
        state = selector.update(state, step(3, 0))
    assert int(state.tier) == 0
    average = state.average
    assert selector.update(state, step(1, 0, offered=0)) is state
    assert selector.update(state, step(3, 2, offered=2)) is state
    assert float(average) < 0.1


@pytest.mark.parametrize("name", ["hf_heuristic", "ema_tiers"])
def test_rules_for_one_draft_need_its_name(name: str) -> None:
    """Without one, with an unknown one, as a spec on the command line."""
    with pytest.raises(ContractError, match=f"{name} needs a draft"):
        get(name).init(SPEC)
    with pytest.raises(ContractError, match=f"{name} needs a draft"):
        from_spec(name)
    with pytest.raises(UnknownName, match="unknown draft 'c'; known: a, b"):
        from_spec(f"{name}:c").init(SPEC)
    with pytest.raises(UnknownName, match="unknown draft 'none'"):
        from_spec(f"{name}:none").init(SPEC)


def test_where_the_length_does_not_fit_the_next_shorter_one_is_taken() -> None:
    """Preferred 4; with it not active 2, then 1, then plain decoding; another draft never."""
    value = single.prefer(SPEC, 1, 4.0)
    order = np.argsort(-value)[:4].tolist()
    assert order == [3, 2, 1, 0]
    assert value[4] == 0.0


def test_greedy_throughput_reads_the_last_outcomes_only() -> None:
    """After 20 misses the successes before them are gone; an offset that was never judged follows the one before."""
    selector = get("throughput_greedy", window=20)
    state = selector.init(SPEC)
    for accepted in [2] * 30 + [0] * 20:
        state = selector.update(state, step(2, accepted))
    cost = np.array([1.0, 1.1, 1.2, 1.3, 9.0])
    _, info = selector.select(state, (0, 0), [0, 0, 0], cost, np.ones(5, bool))
    assert info.scores[:4] == pytest.approx(1.0 / cost[:4])
    assert info.scores[4] == pytest.approx(3.0 / 9.0)


@pytest.mark.parametrize("name", ["kl_ucb", "d_ucb", "sw_ucb", "d_ts", "exp3s", "tsallis_inf", "hedge_fixed_share"])
def test_a_batch_is_a_loop(name: str) -> None:
    """Seeds in one array learn and score as each does alone."""
    selector, seeds = get(name), np.array([3, 4], np.uint64)
    assert selector.update_reward is not None
    fresh = selector.init(ARMS)
    arrays = {f.name: x for f in attrs.fields(type(fresh)) if isinstance(x := getattr(fresh, f.name), np.ndarray)}
    many = attrs.evolve(fresh, **{k: np.broadcast_to(v, (2, *v.shape)) for k, v in arrays.items()})
    alone = [fresh, fresh]
    for number in range(12):
        rng = np.random.default_rng(number)
        arm, x = rng.integers(0, 4, 2), rng.random(2)
        many = selector.update_reward(many, arm, x)
        alone = [selector.update_reward(s, int(a), float(r)) for s, a, r in zip(alone, arm, x, strict=True)]
        got = selector.scores(many, (seeds, number), np.zeros(4, np.int64), COST, EVERY)
        for row, seed, state in zip(got, seeds, alone, strict=True):
            want = selector.scores(state, (int(seed), number), np.zeros(4, np.int64), COST, EVERY)
            assert row == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kl_ucb", {"loglog": -1.0}),
        ("d_ucb", {"rate": 0.0}),
        ("d_ucb", {"width": 0.0}),
        ("d_ts", {"rate": 1.1}),
        ("sw_ucb", {"window": 0}),
        ("sw_ucb", {"width": float("nan")}),
        ("exp3s", {"mix": 0.0}),
        ("exp3s", {"eta": float("inf")}),
        ("hedge_fixed_share", {"share": 0.0}),
        ("mixture", {"rates": ()}),
        ("hf_heuristic", {"start": 0.5}),
        ("ema_tiers", {"weight": 0.0}),
        ("throughput_greedy", {"window": 0}),
    ],
)
def test_constants_that_cannot_be_are_refused(name: str, options: dict[str, Any]) -> None:
    """The message says what is allowed."""
    with pytest.raises(ContractError, match="allowed"):
        get(name, **options)


def test_rewards_of_all_arms_are_checked() -> None:
    """One too few, one above 1, NaN."""
    for name in ("mixture", "hedge_fixed_share"):
        selector = get(name)
        assert selector.update_all is not None
        for bad in ([0.5] * 3, [0.5, 0.5, 0.5, 1.5], [0.5, 0.5, 0.5, float("nan")]):
            with pytest.raises(ContractError, match="rewards are"):
                selector.update_all(selector.init(ARMS), bad)
