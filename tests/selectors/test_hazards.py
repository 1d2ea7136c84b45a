"""Facts about hazard tables: nested lengths, censoring, monotony, scale, bounds."""

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec.errors import ContractError, UnknownName
from flashspec.selectors import Arms, Observation, cht, get, hazard_ts, hazards
from flashspec.selectors.arrays import NUMPY
from flashspec.selectors.pool import repeated
from flashspec.selectors.types import F64, I64

ARMS = Arms.of({"a": (1, 2, 3, 5), "b": (1, 4)}, {"a": 0, "b": 0})
OPTIONS = cht.Options()
NO_CONTEXT = np.zeros(3, np.int64)
ACTIVE = np.ones(len(ARMS), bool)


def step(arm: int, accepted: int, kept: int | None = None, runs: Any = (None, None, None), **more: Any) -> Observation:
    """A step of ``ARMS`` in context 0 unless told otherwise."""
    offered = more.get("offered", int(ARMS.length[arm]))
    kept = accepted + 1 if kept is None else kept
    return Observation(arm, offered, accepted, kept, runs, 0.1, more.get("context", NO_CONTEXT))


def hazard_of(state: cht.Tables, options: cht.Options, context: I64) -> F64:
    """``[R, D, G]``: what the counts of a state say in a context."""
    pool = state.arms.pool
    return np.asarray(NUMPY.pick(cht.forecast(pool, options, state, state.counts), context))


def tables_of(state: cht.Tables, options: cht.Options, counts: F64, logs: F64 | None = None) -> cht.Tables:
    """The state with other counts, and other weights if they are given."""
    weights = state.log_weight if logs is None else logs
    return cht.tables(state.arms.pool, options, state, counts, weights)


@st.composite
def plays(draw: Any) -> tuple[int, int, int]:
    """An arm with a draft, accepted drafts, kept tokens."""
    arm = draw(st.integers(1, len(ARMS) - 1))
    accepted = draw(st.integers(0, int(ARMS.length[arm])))
    return arm, accepted, draw(st.integers(0, accepted + 1))


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_play_reveals_every_shorter_length(longer: int, shorter: int, data: Any) -> None:
    """Evidence of (d, g, a) at offsets up to g' is that of (d, g', min(a, g'))."""
    longer, shorter = max(longer, shorter), min(longer, shorter)
    g, short = int(ARMS.length[longer]), int(ARMS.length[shorter])
    a = data.draw(st.integers(0, g))
    full, _ = hazards.evidence(ARMS, step(longer, a))
    part, _ = hazards.evidence(ARMS, step(shorter, min(a, short)))
    assert np.array_equal(full[:, :, :short], part[:, :, :short])


def test_tables_are_nested_too() -> None:
    """Without forgetting, playing 5 with 4 accepted leaves the hazards of playing 3 with 3 at offsets 1 to 3."""
    selector = get("cht", rates=(1.0,), phi=1.0, share=0.0)
    options = cht.Options(rates=(1.0,), phi=1.0, share=0.0)
    full = selector.update(selector.init(ARMS), step(4, 4))
    part = selector.update(selector.init(ARMS), step(3, 3))
    h, k = (hazard_of(x, options, NO_CONTEXT)[0, 1] for x in (full, part))
    assert np.array_equal(h[:3], k[:3])
    assert h[3] > k[3]
    assert h[4] < k[4]


@given(plays())
def test_an_own_run_is_successes_and_at_most_one_judged_failure(play: tuple[int, int, int]) -> None:
    """a = g adds no failure; a cut step adds none either; successes stop at what was kept."""
    arm, accepted, kept = play
    outcomes, observed = hazards.evidence(ARMS, step(arm, accepted, kept))
    d, g = int(ARMS.draft[arm]), int(ARMS.length[arm])
    assert outcomes[0, d].sum() == min(accepted, kept)
    failed = accepted < g and kept == accepted + 1
    assert outcomes[1, d].sum() == failed
    assert not failed or outcomes[1, d, accepted] == 1
    assert observed.tolist() == [False, d == 1, d == 2]


@pytest.mark.parametrize("name", ["cht", "hazard_ts"])
def test_cut_tokens_are_never_rejections(name: str) -> None:
    """An offer of 5 with 3 accepted, cut to 2 by EOS: two successes, no failure anywhere."""
    selector = get(name)
    state = selector.update(selector.init(ARMS), step(4, 3, kept=2))
    assert state.counts[1].sum() == 0
    assert state.counts[0].max() == 1
    whole = selector.update(selector.init(ARMS), step(4, 3))
    assert whole.counts[1].max() == 1


@pytest.mark.parametrize("name", ["ucb1", "thompson", "adaptive_ts"])
def test_flat_selectors_leave_cut_steps_out(name: str) -> None:
    """A step cut by EOS changes nothing; the same step in full does (control)."""
    selector = get(name)
    fresh = selector.init(ARMS)
    assert selector.update(fresh, step(4, 3, kept=2)) is fresh
    assert selector.update(fresh, step(4, 3)) is not fresh


def test_a_step_that_offered_less_than_its_length_is_judged_by_the_offer() -> None:
    """3 of 5 offered and all 3 accepted: no failure; nothing offered: only the counterfactual counts."""
    outcomes, _ = hazards.evidence(ARMS, step(4, 3, offered=3))
    assert outcomes[:, 1].sum(-1).tolist() == [3, 0]
    outcomes, observed = hazards.evidence(ARMS, step(4, 0, offered=0, runs=(None, (0,), None)))
    assert outcomes[:, 1].sum(-1).tolist() == [0, 1]
    assert observed.tolist() == [False, True, False]


def test_a_counterfactual_run_ends_at_its_first_miss_and_at_the_kept_tokens() -> None:
    """Hits behind a miss are not read, nor hits on tokens that were cut; the played draft's run is its own."""
    outcomes, observed = hazards.evidence(ARMS, step(6, 3, kept=3, runs=(None, (1, 0, 1, 1), None)))
    assert outcomes[:, 1].tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert observed.tolist() == [False, True, True]
    outcomes, _ = hazards.evidence(ARMS, step(6, 3, kept=1, runs=(None, (1, 0, 1), (0,))))
    assert outcomes[:, 1].tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert outcomes[:, 2].tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_expected_tokens_are_one_plus_summed_survival() -> None:
    """Hazards .5, .8, .25: 1, 1.5, 1.9, 2.0 tokens."""
    assert hazards.drafted_tokens(ARMS.pool, np.array([[0.5, 0.8, 0.25]])) == pytest.approx(np.array([[0.5, 0.9, 1.0]]))


def counts(draw: Any, size: int = 3) -> F64:
    """Random tables."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    shape = (2, size, 3, 4, 5)
    return with_sums(rng.gamma(0.4, 6.0, shape) * (rng.random(shape) < 0.7))


def with_sums(table: F64) -> F64:
    """Counts of each context, and their sum as the last row."""
    return np.concatenate((table, table.sum(-2, keepdims=True)), -2)


@given(st.data())
def test_hazards_are_the_written_recursion(data: Any) -> None:
    """A plain loop over rates, drafts, contexts and offsets gives the same numbers."""
    table = counts(data.draw)
    context = np.array(data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)))
    state = attrs.evolve(get("cht").init(ARMS), counts=table)
    got = hazard_of(state, OPTIONS, context)
    for r in range(3):
        for d in range(3):
            previous, weight = 0.5, 2.0
            for j in range(5):
                good, bad = table[0, r, d, :4, j].sum(), table[1, r, d, :4, j].sum()
                pooled = (weight * previous + good) / (weight + good + bad)
                s, f = table[:, r, d, context[d], j]
                assert got[r, d, j] == pytest.approx((4 * pooled + s) / (4 + s + f), rel=1e-12)
                previous, weight = pooled, 3.0


@given(st.data())
def test_learning_is_the_written_update(data: Any) -> None:
    """A plain rendering of the update gives the same counts and weights."""
    table = counts(data.draw)
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    logs = np.log(rng.dirichlet(np.ones(3), 3).T)
    arms = Arms.of({"a": (1, 2, 3, 5), "b": (1, 4)}, {"a": 0})
    state = tables_of(get("cht").init(arms), OPTIONS, table, logs)
    context = rng.integers(0, 4, 3)
    seen = step(4, 2, runs=(None, None, None), context=context)
    got, n = cht.update(state, OPTIONS, seen), 3
    hazard = hazard_of(state, OPTIONS, context)
    weight = np.exp(logs[:, 1]) * hazard[:, 1, 0] * hazard[:, 1, 1] * (1 - hazard[:, 1, 2])
    share = 1 - 0.995**n
    expected = (1 - share) * weight / weight.sum() + share / 3
    assert np.exp(got.log_weight[:, 1]) == pytest.approx(expected)
    for r, rate in enumerate((0.999, 0.99, 0.95)):
        played = table[:, r, 1] * rate**n
        played[0, [context[1], 4], :2] += 1
        played[1, [context[1], 4], 2] += 1
        assert got.counts[:, r, 1] == pytest.approx(played)
        assert got.counts[:, r, 2] == pytest.approx(table[:, r, 2] * 0.998**n)
    assert np.array_equal(got.log_weight[:, 2], logs[:, 2])


@given(st.data(), st.integers(1, 2), st.integers(0, 4), st.floats(0.1, 20))
def test_a_success_never_lowers_and_a_failure_never_raises_the_expected_tokens(
    data: Any, draft: int, offset: int, amount: float
) -> None:
    """One more outcome at (d, j) moves e[d, g] the right way for g >= j, and no other draft."""
    options = cht.Options(rates=(0.99,))
    state = attrs.evolve(get("cht", rates=(0.99,)).init(ARMS), counts=counts(data.draw, 1))
    context = np.array(data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3)))
    before = hazards.drafted_tokens(ARMS.pool, hazard_of(state, options, context)[0])
    for outcome, sign in ((0, 1.0), (1, -1.0)):
        table = state.counts.copy()
        table[outcome, 0, draft, [context[draft], 4], offset] += amount
        after = hazards.drafted_tokens(ARMS.pool, hazard_of(attrs.evolve(state, counts=table), options, context)[0])
        assert (sign * (after - before)[draft, offset:] >= -1e-12).all()
        assert np.array_equal(np.delete(after, draft, 0), np.delete(before, draft, 0))


@given(st.data(), st.sampled_from(["cht", "ucb1"]), st.integers(0, 6), st.floats(1.0001, 50))
def test_a_larger_cost_never_makes_an_arm_newly_selected(data: Any, name: str, arm: int, factor: float) -> None:
    """Raising one arm's cost leaves the choice or takes it away from that arm."""
    selector, cost = get(name), learned_cost(data)
    state = learned(data, name)
    before, _ = selector.select(state, (0, 0), NO_CONTEXT, cost, ACTIVE)
    dearer = cost.copy()
    dearer[arm] *= factor
    after, _ = selector.select(state, (0, 0), NO_CONTEXT, dearer, ACTIVE)
    assert after != arm or before == arm


def learned(data: Any, name: str) -> Any:
    """A state with something in it."""
    state = get(name).init(ARMS)
    if name == "cht":
        return tables_of(state, OPTIONS, counts(data.draw))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    plays = rng.integers(1, 50, len(ARMS)).astype(float)
    if name in ("ucb1", "thompson"):
        return attrs.evolve(state, plays=plays, total=plays * rng.random(len(ARMS)))
    return state


def learned_cost(data: Any) -> F64:
    """Costs of every arm, no two alike."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    return 1.0 + 0.2 * ARMS.length * rng.random(len(ARMS))


@given(st.data(), st.sampled_from(["cht", "ucb1", "thompson", "hazard_ts", "adaptive_ts", "random"]))
def test_the_unit_of_time_does_not_matter(data: Any, name: str) -> None:
    """Costs times any power of two give the same choice, bit for bit."""
    selector, cost, state = get(name), learned_cost(data), learned(data, name)
    first, _ = selector.select(state, (4, 2), NO_CONTEXT, cost, ACTIVE)
    for power in (-20, -3, 1, 30):
        assert selector.select(state, (4, 2), NO_CONTEXT, cost * 2.0**power, ACTIVE)[0] == first


def test_milliseconds_choose_what_seconds_choose() -> None:
    """A factor of 1,000 over 200 steps of a learning run."""
    selector = get("cht")
    for factor in (1000.0, 0.7):
        states = [selector.init(ARMS)] * 2
        for place in range(200):
            cost = 1.0 + 0.07 * ARMS.length + 0.011 * ARMS.draft
            arms = [
                selector.select(s, (1, place), NO_CONTEXT, cost * f, ACTIVE)[0]
                for s, f in zip(states, (1.0, factor), strict=True)
            ]
            assert arms[0] == arms[1]
            accepted = int(np.random.default_rng(place).integers(0, int(ARMS.length[arms[0]]) + 1))
            states = [selector.update(s, step(arms[0], accepted)) for s in states]


def test_a_constant_added_to_the_reward_does_change_the_choice() -> None:
    """Control: the objective is a ratio; one more token for every arm favours the cheap one."""
    hazard = np.array([[0.5] * 5, [0.9] * 5, [0.5] * 5])
    cost = np.array([1.0, 1.5, 2.0, 2.5, 3.5, 1.5, 3.0])
    tokens = hazards.throughput(ARMS.pool, hazard, np.ones(len(ARMS)))
    assert (tokens / cost).argmax() != ((tokens + 5.0) / cost).argmax()


@pytest.mark.parametrize(("name", "steps"), [("cht", 100_000), ("hazard_ts", 100_000), ("ucb1", 100_000)])
def test_extreme_outcomes_keep_every_number_in_bounds(name: str, steps: int) -> None:
    """100,000 updates, all accepted, then all rejected, then alternating: finite, bounded, selectable."""
    selector = get(name)
    arms = Arms.of({"a": (1, 8), "b": (8,)}, {"a": 0, "b": 2})
    state = selector.init(arms)
    good = Observation(2, 8, 8, 9, (None, None, (1,) * 9), 0.1, [0, 3, 0])
    bad = Observation(3, 8, 0, 1, (None, (0,), None), 0.1, [0, 0, 0])
    third = steps // 3
    for place in range(steps):
        state = selector.update(state, good if place < third or (place > 2 * third and place % 2) else bad)
        if place % (steps // 10) == 0 or place in (third - 1, third + 5):
            check_bounds(name, selector, arms, state)
    check_bounds(name, selector, arms, state)


def check_bounds(name: str, selector: Any, arms: Arms, state: Any) -> None:
    """Everything is finite; counts are below 1 / (1 - rate) + 1; weights sum to 1."""
    cost = 1.0 + 0.1 * arms.length
    for value in attrs.astuple(state, recurse=False)[1:]:
        assert np.isfinite(value).all()
    _, info = selector.select(state, (1, 1), np.zeros(3, np.int64), cost, np.ones(len(arms), bool))
    assert np.isfinite(info.scores).all() or name == "ucb1"
    assert not np.isnan(info.scores).any()
    if name == "cht":
        hazard = hazard_of(state, OPTIONS, np.array([0, 3, 0]))
        assert hazard.min() > 0
        assert hazard.max() < 1
        assert np.exp(state.log_weight).sum(0) == pytest.approx(np.ones(3), abs=1e-6)
        rates = np.maximum(np.array([0.999, 0.99, 0.95])[:, None], [0.0, 0.0, 0.99])  # draft 2 is of tier 2
        assert (state.counts.max((0, 3, 4)) <= 1.0 / (1.0 - rates) + 1.0).all()


def test_a_miss_after_many_hits_keeps_the_weights_finite() -> None:
    """The chain over offsets rounds to 1 after a thousand hits; the edge keeps the log of a miss finite."""
    arms = Arms.of({"a": (40,)}, {"a": 0})
    selector = get("cht", rates=(1.0, 0.9))
    table = np.zeros_like(selector.init(arms).counts)
    table[0, ..., :4, :], table[0, ..., 4, :] = 1e6, 4e6
    state = tables_of(selector.init(arms), cht.Options(rates=(1.0, 0.9)), table)
    after = selector.update(state, Observation(1, 40, 39, 40, (None, None), 0.1, [0, 0]))
    assert np.isfinite(after.log_weight).all()


def test_a_draft_of_tier_2_forgets_no_faster_than_its_limit() -> None:
    """Its fastest table fades by 0.99 per kept token while it is played, that of a scored draft by 0.95."""
    for tier, rate in ((0, 0.95), (1, 0.95), (2, 0.99)):
        arms = Arms.of({"a": (5,)}, {"a": tier})
        selector = get("cht")
        state = attrs.evolve(selector.init(arms), counts=np.ones_like(selector.init(arms).counts))
        after = selector.update(state, Observation(1, 5, 2, 3, (None, None), 0.1, [0, 0]))
        assert after.counts[:, 2, 1, 1] == pytest.approx(np.full((2, 5), rate**3))


def test_an_unplayed_draft_of_tier_2_drifts_back_to_unknown() -> None:
    """Its counts shrink by phi per kept token; those of tiers 0 and 1 that were not scored keep still."""
    for tier, expected in ((0, 1.0), (1, 1.0), (2, 0.998**3)):
        arms = Arms.of({"a": (5,), "b": (4,)}, {"a": 0, "b": tier})
        selector = get("cht")
        state = attrs.evolve(selector.init(arms), counts=np.ones_like(selector.init(arms).counts))
        after = selector.update(state, Observation(1, 5, 2, 3, (None, None, None), 0.1, [0, 0, 0]))
        assert after.counts[:, :, 2] == pytest.approx(np.full_like(after.counts[:, :, 2], expected))


def test_a_scored_shadow_draft_is_learned_without_being_played() -> None:
    """Tier 1 with a run counts it, forgetting included."""
    arms = Arms.of({"a": (5,), "b": (4,)}, {"a": 0, "b": 1})
    selector = get("cht")
    after = selector.update(selector.init(arms), Observation(1, 5, 2, 3, (None, None, (1, 1, 0)), 0.1, [0, 0, 0]))
    assert after.counts[0, 0, 2, 0].tolist() == [1, 1, 0, 0, 0]
    assert after.counts[1, 0, 2, 0].tolist() == [0, 0, 1, 0, 0]


def test_contexts_are_told_apart_and_share_what_is_common() -> None:
    """A streak bucket with hits proposes a longer draft than one with misses; an unseen bucket lies between."""
    selector = get("cht")
    state = selector.init(ARMS)
    for _ in range(30):
        state = selector.update(state, step(4, 5, context=np.array([0, 3, 0])))
        state = selector.update(state, step(4, 0, context=np.array([0, 0, 0])))
    first = [hazard_of(state, OPTIONS, np.array([0, k, 0]))[0, 1, 0] for k in (0, 1, 3)]
    assert first[0] < 0.2
    assert first[0] < first[1] < first[2]
    assert first[2] > 0.8


def test_a_prior_warms_the_tables_up_to_its_cap() -> None:
    """100 runs weigh 60 tokens at offset 1; unknown drafts and contexts are refused."""
    selector = get("cht")
    state = selector.init(ARMS, prior={"a": [(0, (1, 1, 0))] * 100})
    assert state.counts[0, :, 1, 0, 0] == pytest.approx(np.full(3, 60.0))
    assert state.counts[1, :, 1, 0, 2] == pytest.approx(np.full(3, 60.0))
    assert selector.init(ARMS, prior={"a": [(2, (0,))]}).counts[1, 0, 1, 2, 0] == 1
    with pytest.raises(UnknownName, match="unknown draft 'c'; known: a, b"):
        selector.init(ARMS, prior={"c": []})
    with pytest.raises(ContractError, match="prior context 4"):
        selector.init(ARMS, prior={"a": [(4, (1,))]})
    with pytest.raises(ContractError, match="tokens is nan"):
        selector.init(ARMS, prior={}, tokens=float("nan"))


@settings(max_examples=30)
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_choices_of_scored_drafts_need_no_luck(seed: int, place: int) -> None:
    """With no tier 2 draft the key does not matter and the propensity is 1; with one it has no closed form."""
    cost = 1.0 + 0.07 * ARMS.length
    arm, info = get("cht").select(get("cht").init(ARMS), (seed, place), NO_CONTEXT, cost, ACTIVE)
    assert arm == get("cht").select(get("cht").init(ARMS), (0, 0), NO_CONTEXT, cost, ACTIVE)[0]
    assert info.propensity == 1.0
    own = Arms.of({"a": (1, 2, 3, 5), "b": (1, 4)})
    assert get("cht").select(get("cht").init(own), (seed, place), NO_CONTEXT, cost, ACTIVE)[1].propensity is None


def test_hazard_thompson_learns_and_draws_as_written() -> None:
    """Every draft decays at every step; offset j is drawn around the draw of offset j - 1 where nothing is known."""
    selector = get("hazard_ts")
    table = np.random.default_rng(3).gamma(1.0, 5.0, (2, 3, 5))
    state = attrs.evolve(selector.init(ARMS), counts=table)
    got = selector.update(state, step(4, 2))
    expected = table * 0.996**3
    expected[0, 1, :2] += 1
    expected[1, 1, 2] += 1
    assert got.counts == pytest.approx(expected)
    known = np.zeros((2, 3, 5))
    known[0, 1, 0], known[1, 2, 0] = 300.0, 300.0
    keys = (np.arange(400), np.array(0))
    drawn = hazard_ts.draw(ARMS.pool, repeated(attrs.evolve(state, counts=known), 400), keys, 3.0)
    assert drawn[:, 1, 0].mean() == pytest.approx(301 / 302, abs=0.002)
    assert drawn[:, 1, 1].mean() == pytest.approx(301 / 302, abs=0.02)
    assert drawn[:, 2, 1].mean() == pytest.approx(1 / 302, abs=0.02)
    assert drawn[:, 0, 0].mean() == pytest.approx(0.5, abs=0.08)
