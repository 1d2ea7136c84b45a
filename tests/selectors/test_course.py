"""Courses: texts that every policy decodes alike, with late feedback and shadow scoring."""

from typing import Any

import numpy as np
import pytest

from flashspec.errors import ContractError, UnknownName
from flashspec.selectors import Arms, Observation, Scored, Selector, cht, get, hazards
from flashspec.selectors import environments as env
from flashspec.selectors.course import Course, Feedback, Walk, follow, shadowed
from flashspec.selectors.schedule import schedule, spent, time_of
from flashspec.selectors.simulate import play

WORLD = env.World()
TEXT = env.text(WORLD, 3, 1_500)
ARMS = Arms.of({"a": (1, 2, 4), "b": (2,)}, {"a": 0, "b": 1})


def small(offered: Any = None) -> Course:
    """Eight tokens: draft a is right on the first three, b never."""
    accepted = np.array([[0] * 8, [3, 2, 1, 0, 0, 4, 4, 4], [0] * 8])
    context = np.array([[0] * 8, [0, 1, 2, 3, 0, 0, 0, 0], [0] * 8])
    return Course(8, np.array([0] * 4 + [1] * 4), accepted, context, offered)


def watched(name: str, log: list[Any]) -> Selector:
    """A selector that writes down what it is asked and told."""
    base = get(name, arm="a/2") if name == "fixed" else get(name)

    def select(state: Any, key: Any, context: Any, cost: Any, active: Any) -> Any:
        log.append(("select", key[1], tuple(int(c) for c in context), tuple(active.tolist())))
        return base.select(state, key, context, cost, active)

    def update(state: Any, seen: Observation) -> Any:
        log.append(("update", seen))
        return base.update(state, seen)

    return Selector(base.name, base.init, select, update, base.scores)


def test_a_step_emits_accepted_plus_one_and_arms_must_fit_into_the_rest() -> None:
    """a/2 accepts 2, 0, then 2 of 4 right; at the last token nothing is drafted."""
    log: list[Any] = []
    given = follow(watched("fixed", log), small(), ARMS, np.ones(5))
    assert given.place.tolist() == [0, 3, 4, 5, 8]
    assert given.plays.tolist() == [0, 0, 4, 0, 0]
    assert given.time_per_token == pytest.approx(4 / 8)
    fits = [entry[3] for entry in log if entry[0] == "select"]
    assert fits[0] == (True,) * 5
    assert fits[-1] == (True, True, True, False, True)


def test_an_offer_that_is_shorter_switches_the_longer_arms_off() -> None:
    """Where draft a has one token only, a/2 is not active; a run without a miss is censored there."""
    offered = np.full((3, 8), 9)
    offered[1, 0] = 1
    course = small(offered)
    course.accepted[1, 0] = 1
    walk = Walk.of(course, ARMS)
    assert walk.active(0).tolist() == [True, True, False, False, True]
    assert walk.run(1, 0, 5) == (1,)
    assert walk.run(1, 1, 5) == (1, 1, 0)
    assert walk.run(1, 1, 2) == (1, 1)
    offered[1, 0] = 0
    course.accepted[1, 0] = 0
    assert Walk.of(small(offered), ARMS).run(1, 0, 5) is None


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_feedback_is_late_by_the_steps_asked_for(delay: int) -> None:
    """An update comes right after the select that is ``delay`` steps younger than its step; contexts stay fresh."""
    log: list[Any] = []
    follow(watched("fixed", log), small(), ARMS, np.ones(5), feedback=Feedback(delay=delay))
    kinds = [entry[0] for entry in log]
    assert kinds == ["select"] * delay + ["select", "update"] * (4 - delay)
    assert [entry[2][1] for entry in log if entry[0] == "select"] == [0, 3, 0, 0]


def test_stale_contexts_are_those_of_earlier_steps() -> None:
    """Control for the fresh ones above."""
    log: list[Any] = []
    follow(watched("fixed", log), small(), ARMS, np.ones(5), feedback=Feedback(delay=1, stale=True))
    assert [entry[2][1] for entry in log if entry[0] == "select"] == [0, 0, 3, 0]


def test_shadow_scoring_covers_unplayed_steps_once_and_is_charged() -> None:
    """Every second step scores draft b on the steps in which it was not played, oldest first, and costs time."""
    log: list[Any] = []
    forward = np.array([0.0, 0.1, 0.5])
    given = follow(watched("fixed", log), small(), ARMS, np.ones(5), forward=forward, feedback=Feedback(shadow=2))
    late = [entry[1].late for entry in log if entry[0] == "update"]
    assert [len(x) for x in late] == [0, 1, 0, 2]
    assert [scored.runs for scored in late[1]] == [(None, None, (0,))]
    assert [scored.kept for scored in late[3]] == [1, 1]
    assert given.time == pytest.approx([1.0, 1.0 + 0.5 * (1 + 0.02 * 3), 1.0, 1.0 + 0.5 * (1 + 0.02 * 2)])


def test_a_played_draft_is_not_scored_again() -> None:
    """Its own run said it already; with nothing to score nothing is charged."""
    walk = Walk.of(small(), ARMS)
    late, cost = shadowed(walk, [(2, 0, 1), (2, 3, 1)], np.array([0.0, 0.1, 0.5]))
    assert [scored.runs for scored in late] == [(None, None, None)] * 2
    assert cost == 0.0


def test_late_scores_teach_what_early_ones_would_have() -> None:
    """Three steps scored at once leave the tables of the draft as if each had been scored in its turn."""
    selector, zero = get("cht"), [0, 0, 0]
    runs = ((1, 1, 0), (0,), (1,))
    kept = (3, 1, 1)
    early, tail = selector.init(ARMS), selector.init(ARMS)
    for run, count in zip(runs, kept, strict=True):
        played = Observation(3, 4, count - 1, count, (None, None, run), 0.1, zero)
        early = selector.update(early, played)
    late = tuple(Scored((None, None, run), count, zero) for run, count in zip(runs, kept, strict=True))
    for place, count in enumerate(kept):
        seen = Observation(3, 4, count - 1, count, (None,) * 3, 0.1, zero, late=late if place == 2 else ())
        tail = selector.update(tail, seen)
    assert tail.counts == pytest.approx(early.counts)
    assert tail.log_weight == pytest.approx(early.log_weight)
    assert tail.counts[:, :, 2].sum() > 0


@pytest.mark.parametrize("share", [0.005, 0.3])
@pytest.mark.parametrize("late", [1, 7, 40])
def test_late_scores_together_are_late_scores_one_by_one(late: int, share: float) -> None:
    """Drafts, contexts and lengths of steps at random: counts bit for bit, weights and forecasts to 1e-12."""
    arms = Arms.of({"a": (1, 2), "b": (3,), "c": (1, 20)}, {"a": 0, "b": 1})
    selector, luck = get("cht", share=share), np.random.default_rng(late)
    options, state = cht.Options(share=share), selector.init(arms)
    steps = []
    for _ in range(5 + late):
        kept = int(luck.integers(1, 22))
        runs = [None if luck.random() < 0.3 else tuple(luck.integers(0, 2, kept).tolist()) for _ in arms.drafts]
        steps.append(Scored(runs, kept, luck.integers(0, 4, 4)))
    slow = state
    for number, one in enumerate(steps):
        state = slow if number == 5 else state
        new, observed = cht.located(arms, options, hazards.late_runs(one), one.context)
        slow = cht.absorb(arms.pool, options, slow, new, observed, one.context, one.kept)
    found = cht.catch_up(options, state, steps[5:])
    assert np.array_equal(found.counts, slow.counts)
    assert np.abs(found.log_weight - slow.log_weight).max() < 1e-12
    assert np.abs(found.hazard - slow.hazard).max() < 1e-12
    assert np.abs(found.log_weight - state.log_weight).max() > 1e-5


def test_late_scores_end_at_the_miss_and_at_the_kept_tokens() -> None:
    """As runs of the step itself do."""
    outcomes, observed = hazards.scored_evidence(ARMS, Scored((None, (1, 0, 1), (1, 1, 1)), 2, [0, 0, 0]))
    assert outcomes[:, 1].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert outcomes[:, 2].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]
    assert observed.tolist() == [False, True, True]


def test_late_scores_that_cannot_be_are_refused() -> None:
    """No token, a run without a context, a hit of 2."""
    with pytest.raises(ContractError, match="kept >= 1"):
        Scored((None, None), 0, [0, 0])
    with pytest.raises(ContractError, match="one context per draft"):
        Scored((None, None), 1, [0])
    with pytest.raises(ContractError, match="tuple of 0 and 1"):
        Scored((None, (2,)), 1, [0, 0])
    seen = Observation(0, 0, 0, 1, (None,) * 3, 0.1, [0] * 3, late=(Scored((None,) * 2, 1, [0, 0]),))
    with pytest.raises(ContractError, match="late scores of 2 drafts"):
        get("cht").update(get("cht").init(ARMS), seen)
    with pytest.raises(ContractError, match="delay >= 0"):
        Feedback(delay=-1)
    with pytest.raises(ContractError, match="shadow None or >= 1"):
        Feedback(shadow=0)


def test_every_policy_emits_the_whole_text() -> None:
    """Steps tile it: kept tokens add up whatever is chosen."""
    for name in ("cht", "random", "ucb1", "exp3s"):
        given = play(get(name), WORLD, TEXT, WORLD.arms(), seed=2)
        assert (np.diff(given.place) >= 1).all()
        assert 1_500 <= given.place[-1] <= 1_510
        assert given.plays.sum() == len(given.arm)


def test_a_schedule_of_one_arm_is_the_selector_that_plays_it() -> None:
    """Fixed arms and schedules agree on the time, in a world and where arms do not fit."""
    arms = WORLD.arms()
    arm = arms.names.index("head/5")
    fixed = play(get("fixed", arm="head/5"), WORLD, TEXT, arms).time_per_token
    assert env.time_of(TEXT, arms, WORLD.cost(arms), np.full(3, arm)) == pytest.approx(fixed)
    lone = schedule(small(), ARMS, np.ones(5), np.array([2, 2]))
    assert lone.place.tolist() == [0, 3, 4, 5, 8]
    assert time_of(small(), ARMS, np.ones(5), np.array([3, 0])) == pytest.approx(5 / 8)


def test_a_schedule_takes_the_next_shorter_arm_where_its_own_does_not_fit() -> None:
    """With three tokens left a/4 gives way to a/2."""
    assert schedule(small(), ARMS, np.ones(5), np.array([3, 3])).arm.tolist() == [3, 2, 2]


def test_time_is_spread_over_the_tokens_of_a_step() -> None:
    """Interpolated between the ends of steps."""
    given = schedule(small(), ARMS, np.ones(5), np.array([2, 2]))
    assert spent(given, np.array([0, 3, 4, 8])) == pytest.approx([0.0, 1.0, 2.0, 4.0])
    assert spent(given, np.array([1])) == pytest.approx([1 / 3])


def test_words_for_feedback_are_listed() -> None:
    """The four ways, the tiers that they give, and the error for a fifth."""
    assert WORLD.tiers("own") == {}
    assert WORLD.tiers("ngram") == {"ngram": 0}
    assert WORLD.tiers("shadow") == {"ngram": 0, "head": 1, "small": 1}
    assert set(WORLD.tiers("all").values()) == {0}
    with pytest.raises(UnknownName, match="known: all, ngram, own, shadow"):
        WORLD.tiers("some")


def test_random_worlds_are_functions_of_their_seed_and_within_their_ranges() -> None:
    """Prices, domains and acceptance as documented."""
    assert env.random_world(4) == env.random_world(4)
    worlds = [env.random_world(seed) for seed in range(40)]
    assert {world.domains for world in worlds} == {2, 3, 4}
    for world in worlds:
        assert 3 <= len(world.drafters) <= 5
        assert all(0.02 <= d.each <= 0.35 for d in world.drafters[1:])
        given = env.text(world, 0, 400)
        assert given.domain.max() < world.domains
