"""Selectors in the token-clocked world: shares of an oracle that knows the domain of every token.

Texts and keys are fixed, so the numbers are exact; policies are compared on the same texts.
"""

import functools
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.selectors import Arms, Observation, Selector, experiment, from_spec, get, scenes, setup
from flashspec.selectors import environments as env
from flashspec.selectors.course import AT_ONCE, Feedback
from flashspec.selectors.simulate import play
from flashspec.selectors.types import State

WORLD = env.World()
ARMS = WORLD.arms()
COST = WORLD.cost(ARMS)
ORACLE = ("head/5", "small/6", "ngram/10")
"""Best arm of chat, code and edit; ``test_the_oracle_plays_the_best_arm_of_each_domain`` derives it."""


@functools.cache
def texts() -> tuple[env.Text, ...]:
    """Two texts of 8,000 tokens, about eight domains each."""
    return tuple(env.text(WORLD, seed, 8_000) for seed in range(2))


def fraction(selector: Selector, state: State, seen: Observation) -> State:
    """The wrong reward: accepted over offered."""
    assert selector.update_reward is not None
    return selector.update_reward(state, seen.arm, seen.accepted / max(1, seen.offered))


@functools.cache
def percent(name: str, tiers: str = "ngram", wrong: bool = False) -> float:
    """Mean share of the oracle's throughput, in percent."""
    oracle = np.array([ARMS.names.index(arm) for arm in ORACLE])
    arms = WORLD.arms({"own": {}, "ngram": None, "all": dict.fromkeys(("ngram", "head", "small", "exit"), 0)}[tiers])
    more: dict[str, Any] = {"cost": arms.length + 1.0, "learn": fraction} if wrong else {}
    shares = []
    for given in texts():
        best = env.time_of(given, ARMS, COST, oracle)
        shares.append(best / play(get(name), WORLD, given, arms, seed=5, **more).time_per_token)
    return 100.0 * float(np.mean(shares))


def test_cht_with_free_ngram_feedback_reaches_the_oracle() -> None:
    """At least 99 percent with own play and the n-gram's counterfactual in context."""
    assert percent("cht") >= 99.0


def test_cht_with_every_draft_scored_passes_the_oracle() -> None:
    """Context beats domain labels: at least 100 percent."""
    assert percent("cht", "all") >= 100.0


def test_feedback_orders_the_results() -> None:
    """Own play alone is behind free n-gram feedback, which is behind full information."""
    assert percent("cht", "own") + 1.0 < percent("cht") < percent("cht", "all")


def test_flat_bandits_are_far_behind() -> None:
    """33 arms without structure: UCB1 and Thompson at least 12 points below CHT."""
    for name in ("ucb1", "thompson"):
        assert 60.0 < percent(name) < percent("cht") - 12.0


def test_hazards_without_context_lie_between() -> None:
    """Hazard Thompson beats every flat bandit and is behind CHT."""
    flat = max(percent("ucb1"), percent("thompson"))
    assert flat + 3.0 < percent("hazard_ts") < percent("cht") - 3.0


def test_the_fraction_accepted_is_the_wrong_reward() -> None:
    """Control: UCB1 on accepted / offered loses at least 5 points to UCB1 on throughput, and to random play."""
    assert percent("ucb1", wrong=True) < percent("ucb1") - 5.0
    assert percent("ucb1", wrong=True) < percent("random")


def test_the_oracle_plays_the_best_arm_of_each_domain() -> None:
    """Every arm alone on 20,000 tokens of each domain."""
    best = env.oracle(WORLD, ARMS, 20_000, [100])
    assert tuple(ARMS.names[arm] for arm in best) == ORACLE


@pytest.mark.parametrize("feedback", ["own", "ngram", "all"])
def test_nothing_to_gain_costs_little(feedback: str) -> None:
    """Drafts that are never right: after 64 tokens at least 99 percent of plain decoding, whatever is observed."""
    given = scenes.useless(range(2), 2_000, feedback)
    assert all(scene.best.plays[0] == 2_000 for scene in given)
    assert parts("cht", given, scenes.FLOOR_PARTS)["after 64"] >= 99.0


def test_a_sampled_block_is_what_its_offsets_say() -> None:
    """Acceptance of a draft in one domain has the stated mean; the n-gram's stays have the stated share."""
    chat = env.text(WORLD, 4, 60_000, domain=0)
    first = (chat.accepted >= 1).mean(1)
    assert first[2:] == pytest.approx([0.74, 0.70, 0.90], abs=0.015)
    assert first[1] == pytest.approx(0.08 * 0.97 + 0.92 * 0.06, abs=0.015)
    assert not chat.accepted[0].any()


def test_streaks_count_the_hits_just_before() -> None:
    """A streak of s at a place means hits at the s places before it and a miss before them."""
    given = env.text(WORLD, 7, 500)
    hit = given.accepted[1] >= 1
    for place in range(1, 500):
        s = int(given.streak[1, place])
        assert hit[place - s : place].all()
        assert s == place or not hit[place - s - 1]
    assert env.bucket(np.array([0, 1, 2, 3, 6, 7, 90])).tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_texts_are_functions_of_their_seed() -> None:
    """The same seed gives the same text, another seed another one."""
    a, b, c = (env.text(WORLD, seed, 300).accepted for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


def test_the_index_of_an_arm_has_its_own_bonus() -> None:
    """Two arms of the same mean: the one played less is worth more (a bonus shared by all would say equal)."""
    from flashspec.selectors.arrays import NUMPY
    from flashspec.selectors.ucb1 import index

    values = index(NUMPY, np.array([10.0, 100.0]), np.array([5.0, 50.0]), 1.0)
    assert values[0] - values[1] == pytest.approx(np.sqrt(2 * np.log(110)) * (10**-0.5 - 100**-0.5))


def test_mean_and_count_cover_the_same_plays() -> None:
    """After 1,000 successes and 1,000 failures the mean is 1/2 with the bonus of 2,000 plays."""
    selector, arms = get("ucb1"), Arms.of({"a": (1,)})
    assert selector.update_reward is not None
    state = selector.init(arms)
    for x in [1.0] * 1000 + [0.0] * 1000:
        state = selector.update_reward(state, 0, x)
    state = selector.update_reward(state, 1, 0.0)
    _, info = selector.select(state, (0, 0), [0, 0], [1.0, 2.0], np.ones(2, bool))
    assert info.scores[0] == pytest.approx(0.5 + np.sqrt(2 * np.log(2001) / 2000))


def test_the_reward_of_a_step_is_throughput_over_the_largest_possible() -> None:
    """UCB1's mean of an arm is kept tokens over plays times cost, over the best (length + 1) / cost."""
    selector, arms = get("ucb1", width=0.0), Arms.of({"a": (4, 8)})
    state = selector.init(arms)
    for arm, accepted in ((0, 0), (1, 1), (1, 4), (1, 2), (2, 8)):
        seen = Observation(arm, int(arms.length[arm]), accepted, accepted + 1, (None, None), 9.9, [0, 0])
        state = selector.update(state, seen)
    cost, top = np.array([1.0, 1.5, 2.5]), 9 / 2.5
    _, info = selector.select(state, (0, 0), [0, 0], cost, np.ones(3, bool))
    assert info.scores == pytest.approx(np.array([1 / 1.0, (2 + 5 + 3) / (3 * 1.5), 9 / 2.5]) / top)
    _, info = selector.select(state, (0, 0), [0, 0], cost, np.array([True, True, False]))
    assert info.scores[:2] == pytest.approx(np.array([1.0, 10 / 4.5]) / (5 / 1.5))


def test_measured_seconds_of_one_step_do_not_move_the_choice() -> None:
    """A hiccup is not a bad arm: states after 0.01 s and after 10 s are the same."""
    for name in ("ucb1", "thompson", "adaptive_ts", "cht", "hazard_ts"):
        selector = get(name)
        states = [
            selector.update(selector.init(ARMS), Observation(3, 3, 2, 3, (None,) * 5, seconds, [0] * 5))
            for seconds in (0.01, 10.0)
        ]
        fields = [[v.tobytes() for v in vars_of(state)] for state in states]
        assert fields[0] == fields[1]


def vars_of(state: Any) -> list[Any]:
    """The arrays of a state."""
    return [
        getattr(state, f) for f in ("counts", "log_weight", "plays", "total", "success", "weight") if f in dir(state)
    ]


def reached(feedback: str, more: Feedback, size: int, seeds: int, name: str = "cht") -> float:
    """Mean share of the oracle's throughput over fresh texts, in percent."""
    given = scenes.speculation(range(seeds), size, feedback)
    shares = [scene.best.time_per_token / scene.play(get(name), more).time_per_token for scene in given]
    return 100.0 * float(np.mean(shares))


def parts(name: str, given: list[scenes.Scene], names: tuple[str, ...]) -> dict[str, float]:
    """Percent of the reference's throughput by segment."""
    plays = [scene.play(get(name), AT_ONCE) for scene in given]
    return experiment.compared("x", name, given, plays, names).row()["percent_by_part"]  # type: ignore[no-any-return]


RANDOM_WORLDS = (104.0, 96.0)
SHADOW, LATE = Feedback(shadow=16), Feedback(delay=2)


def test_shadow_scoring_earns_its_price() -> None:
    """Scoring the cheaper models every 16 steps, at its price, passes the oracle on four short texts."""
    assert reached("shadow", SHADOW, 8_000, 4) >= max(100.0, reached("ngram", AT_ONCE, 8_000, 4))


def test_late_feedback_costs_little_where_contexts_are_fresh() -> None:
    """Two steps late loses at most 1.5 points with every draft scored; late contexts lose more (control)."""
    prompt, late, stale = (reached("all", more, 8_000, 2) for more in (AT_ONCE, LATE, Feedback(delay=2, stale=True)))
    assert late >= prompt - 1.5
    assert stale < late - 1.0


@pytest.mark.nightly
def test_gates_on_twelve_long_texts() -> None:
    """30,000 tokens each: at least 99 percent with n-gram feedback, 100 with shadow scoring."""
    assert reached("ngram", AT_ONCE, 30_000, 12) >= 99.0
    assert reached("shadow", SHADOW, 30_000, 12) >= 100.0


@pytest.mark.nightly
def test_random_worlds() -> None:
    """60 worlds: mean and tenth percentile of the domain-switching oracle with n-gram feedback."""
    shares = setup.run(setup.Setup.of("worlds", ["cht"]), lambda stage: None).results[0].percent
    assert len(shares) == 60
    assert shares.mean() >= RANDOM_WORLDS[0]
    assert np.quantile(shares, 0.1) >= RANDOM_WORLDS[1]


@pytest.mark.parametrize("domain", [0, 1, 2])
def test_a_stationary_text_is_decoded_as_by_its_best_arm(domain: int) -> None:
    """After 3,000 tokens at least 98 percent of the best fixed arm, with n-gram feedback alone."""
    given = scenes.stationary(domain, range(21, 23), 9_000, "ngram")
    assert parts("cht", given, scenes.STRETCHES)["after 3000"] >= 98.0


def test_a_prompt_warms_the_first_steps() -> None:
    """After a prompt of 256 tokens: at least 96 percent over the first 512, and more than on the same text without."""
    warm = scenes.stationary(1, range(21, 29), 1_000, "ngram", 256)
    cold = [attrs.evolve(scene, prior=None) for scene in warm]
    first = [parts("cht", given, scenes.STRETCHES)["first 512"] for given in (cold, warm)]
    assert first[1] >= max(96.0, first[0] + 1.0)


def test_a_prompt_is_the_text_before_the_text() -> None:
    """Runs of every draft at every place of the prompt; the text goes on where it ends."""
    (scene,) = scenes.stationary(1, [5], 300, "own", 40)
    whole = env.text(WORLD, 5, 340, 1).course(WORLD)
    assert np.array_equal(scene.course.accepted, whole.accepted[:, 40:])
    assert scene.prior is not None
    assert set(scene.prior) == {"ngram", "head", "small", "exit"}
    for d, name in enumerate(scene.arms.drafts[1:], 1):
        for place, (context, run) in enumerate(scene.prior[name]):
            assert context == whole.context[d, place]
            assert sum(run) == whole.accepted[d, place]
            assert len(run) == min(10, sum(run) + 1)


def test_published_rules_for_one_draft_are_behind() -> None:
    """Even on the head alone, which is never far from the best in chat, lengths without costs lose to CHT."""
    given = scenes.speculation(range(2), 8_000, "own")
    rules = [
        np.mean(
            [100.0 * scene.best.time_per_token / scene.play(from_spec(name), AT_ONCE).time_per_token for scene in given]
        )
        for name in ("hf_heuristic:head", "ema_tiers:head")
    ]
    assert max(rules) < percent("cht") - 10.0


def test_domains_add_up_and_every_row_has_its_keys() -> None:
    """Percent by domain surrounds the whole; curves end at the regret."""
    given = scenes.speculation(range(2), 4_000, "ngram")
    outcome = experiment.compared("x", "ucb1", given, [s.play(get("ucb1"), AT_ONCE) for s in given], env.DOMAINS)
    row = outcome.row()
    by_domain = row["percent_by_part"].values()
    assert min(by_domain) <= row["percent_of_oracle"] <= max(by_domain)
    assert row["percent_min"] <= row["percent_p10"] <= row["percent_of_oracle"]
    assert outcome.lost[-1] == pytest.approx(outcome.regret)
    assert outcome.share.sum(1) == pytest.approx(np.ones(len(outcome.at)))
    assert row["curve"]["at"][-1] == 4_000
