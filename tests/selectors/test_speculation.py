"""Selectors in the token-clocked world: shares of an oracle that knows the domain of every token.

Texts and keys are fixed, so the numbers are exact; policies are compared on the same texts.
"""

import functools
from typing import Any

import numpy as np
import pytest

from flashspec.selectors import Arms, Observation, Selector, get
from flashspec.selectors import environments as env
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
    """At least 95 percent with own play and the n-gram's counterfactual in context."""
    assert percent("cht") >= 95.0


def test_cht_with_every_draft_scored_passes_the_oracle() -> None:
    """Context beats domain labels: at least 100 percent."""
    assert percent("cht", "all") >= 100.0


def test_feedback_orders_the_results() -> None:
    """Own play alone is behind free n-gram feedback, which is behind full information."""
    assert percent("cht", "own") + 2.0 < percent("cht") + 1.0 < percent("cht", "all")


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


def test_nothing_to_gain_costs_little() -> None:
    """Drafts that are never accepted: after 64 tokens, plain decoding at most 1 percent slower."""
    hopeless = env.World(
        drafters=(
            env.Drafter("ngram", 0.01, 0.0005, env.Copying((0.5,) * 3, (5.0,) * 3, inside=0.0, outside=0.0)),
            env.Drafter("exit", 0.0, 0.3, env.Modelling((1e-9,) * 3)),
        )
    )
    arms = hopeless.arms({"ngram": 0, "exit": 0})
    given = env.text(hopeless, 1, 2_000)
    warm = play(get("cht"), hopeless, env.text(hopeless, 1, 64), arms).time_per_token * 64
    whole = play(get("cht"), hopeless, given, arms).time_per_token * 2_000
    assert (whole - warm) / (2_000 - 64) < 1.01


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
    from flashspec.selectors.ucb1 import index

    values = index(np.array([10.0, 100.0]), np.array([5.0, 50.0]), 1.0)
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
