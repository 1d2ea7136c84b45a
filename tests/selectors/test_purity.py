"""Facts that hold for every selector: purity, keys, order of drafts, serialisation, refusals."""

import json
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.errors import BackendUnavailable, ContractError, UnknownName
from flashspec.selectors import Arms, Observation, Selector, choice, from_json, get, names, to_json

ALL = (
    "adaptive_ts", "cht", "d_ts", "d_ucb", "exp3s", "fixed", "hazard_ts", "hedge_fixed_share", "kl_ucb", "mixture",
    "random", "sw_ucb", "thompson", "throughput_greedy", "tsallis_inf", "ucb1",
)  # fmt: skip
LEARNING = tuple(name for name in ALL if name not in ("fixed", "random"))
RANDOMISED = (
    "random", "thompson", "adaptive_ts", "cht", "hazard_ts", "d_ts", "exp3s", "tsallis_inf", "hedge_fixed_share",
)  # fmt: skip


def bits(state: Any) -> dict[str, bytes]:
    """The bytes of every array of a state."""
    return {
        f.name: getattr(state, f.name).tobytes()
        for f in attrs.fields(type(state))
        if isinstance(getattr(state, f.name), np.ndarray)
    }


@pytest.mark.parametrize("name", ALL)
def test_select_and_update_leave_their_inputs_alone(name: str, lab: Any) -> None:
    """States, contexts, costs and masks keep their bits."""
    selector, arms = get(name), lab.arms_of()
    state, _ = lab.wander(selector, arms, 40)
    before, cost, active, context = bits(state), lab.cost_of(arms), np.ones(len(arms), bool), np.array([0, 3, 0, 0])
    kept = (cost.copy(), active.copy(), context.copy())
    selector.select(state, (5, 1), context, cost, active)
    selector.update(state, lab.seen(arms, 4, 3, runs={"ngram": (1, 1, 0)}))
    assert bits(state) == before
    assert all(np.array_equal(a, b) for a, b in zip(kept, (cost, active, context), strict=True))


@pytest.mark.parametrize("name", ALL)
def test_the_same_key_takes_the_same_arm(name: str, lab: Any) -> None:
    """A choice is a function of state, key, context, cost and mask."""
    arms = lab.arms_of()
    state, _ = lab.wander(get(name), arms, 25)
    cost, active = lab.cost_of(arms), np.ones(len(arms), bool)
    for step in range(20):
        first = get(name).select(state, (11, step), [0] * 4, cost, active)
        again = get(name).select(state, (11, step), [0] * 4, cost, active)
        assert first[0] == again[0]
        assert np.array_equal(first[1].scores, again[1].scores)


@pytest.mark.parametrize("name", RANDOMISED)
def test_another_step_or_seed_draws_other_scores(name: str, lab: Any) -> None:
    """Both parts of the key count (control for the test above)."""
    arms = lab.arms_of()
    state, _ = lab.wander(get(name), arms, 25)
    cost, active = lab.cost_of(arms), np.ones(len(arms), bool)
    scores = [get(name).select(state, key, [0] * 4, cost, active)[1].scores for key in ((1, 1), (1, 2), (2, 1))]
    assert len({s.tobytes() for s in scores}) == 3


@pytest.mark.parametrize("name", ALL)
def test_permuting_the_drafts_permutes_the_choices(name: str, lab: Any) -> None:
    """The arms taken have the same names whatever the order of the drafts, randomised tiers included."""
    config = {"arm": "model/3"} if name == "fixed" else {}
    first = lab.wander(get(name, **config), lab.arms_of(("ngram", "model", "head")), 120)[1]
    second = lab.wander(get(name, **config), lab.arms_of(("head", "ngram", "model")), 120)[1]
    assert first == second
    assert name in ("fixed", "throughput_greedy", "mixture") or len(set(first)) > 2


@pytest.mark.parametrize("name", ALL)
def test_a_state_survives_json_bit_for_bit(name: str, lab: Any) -> None:
    """to_json, then from_json: the same bytes, the same next choices."""
    selector, arms = get(name), lab.arms_of()
    state, _ = lab.wander(selector, arms, 60)
    text = to_json(selector, state)
    restored = from_json(get(name), lab.arms_of(), text)
    assert bits(restored) == bits(state)
    assert to_json(selector, restored) == text


def test_a_state_of_other_arms_options_or_schema_is_refused(lab: Any) -> None:
    """The message names what differs and what to do."""
    arms = lab.arms_of()
    selector = get("cht")
    text = to_json(selector, lab.wander(selector, arms, 5)[0])
    with pytest.raises(ContractError, match=r"arms .*start again with selector\.init"):
        from_json(selector, lab.arms_of(("head", "model", "ngram")), text)
    with pytest.raises(ContractError, match="has arms"):
        from_json(selector, lab.arms_of(tiers={"ngram": 0}), text)
    with pytest.raises(ContractError, match="has config"):
        from_json(get("cht", share=0.01), arms, text)
    with pytest.raises(ContractError, match="has selector"):
        from_json(get("ucb1"), arms, text)
    with pytest.raises(ContractError, match="has schema 2"):
        from_json(selector, arms, json.dumps({**json.loads(text), "schema": 2}))
    with pytest.raises(ContractError, match="not JSON"):
        from_json(selector, arms, text[:-9])
    with pytest.raises(ContractError, match="has schema None"):
        from_json(selector, arms, "[]")


@pytest.mark.parametrize("damage", ["missing", "shape", "dtype", "nan"])
def test_a_damaged_state_is_refused(damage: str, lab: Any) -> None:
    """Arrays that are absent, of other shape or dtype, or not finite do not become a state."""
    selector, arms = get("ucb1"), lab.arms_of()
    saved = json.loads(to_json(selector, selector.init(arms)))
    plays = saved["arrays"]["plays"]
    if damage == "missing":
        del saved["arrays"]["plays"]
    elif damage == "shape":
        plays["values"] = plays["values"][:-1]
    elif damage == "dtype":
        plays["dtype"] = "float32"
    else:
        plays["values"][0] = float("nan")
    with pytest.raises(ContractError, match="arrays that do not fit"):
        from_json(selector, arms, json.dumps(saved))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), -float("inf")])
def test_a_cost_that_cannot_be_is_refused_by_the_arms_name(name: str, bad: float, lab: Any) -> None:
    """Zero, negative, NaN and infinite costs."""
    arms = lab.arms_of()
    cost = lab.cost_of(arms)
    cost[4] = bad
    with pytest.raises(ContractError, match="cost of ngram/8 is"):
        get(name).select(get(name).init(arms), (0, 0), [0] * 4, cost, np.ones(len(arms), bool))


def test_shapes_masks_and_contexts_that_cannot_be_are_refused(lab: Any) -> None:
    """Each message says which argument and what is allowed."""
    arms, selector = lab.arms_of(), get("ucb1")
    state, cost, active = selector.init(arms), lab.cost_of(arms), np.ones(len(arms), bool)
    without = active.copy()
    without[0] = False
    for arguments, words in (
        (([0] * 4, cost[1:], active), "cost has shape"),
        (([0] * 4, cost, active[1:]), "active has dtype bool and shape"),
        (([0] * 4, cost, active.astype(int)), "active has dtype int64"),
        (([0] * 4, cost, without), "active leaves out arm 0"),
        (([0] * 4, cost, np.zeros(len(arms), bool)), "active leaves out arm 0"),
        (([0] * 3, cost, active), "context has shape"),
        (([0, 0.5, 0, 0], cost, active), "integer bucket"),
        (([0, -1, 0, 0], cost, active), "integer bucket"),
    ):
        with pytest.raises(ContractError, match=words):
            selector.select(state, (0, 0), *arguments)
    with pytest.raises(ContractError, match="buckets 0 to 3"):
        get("cht").select(get("cht").init(arms), (0, 0), [0, 4, 0, 0], cost, active)


@pytest.mark.parametrize("key", [(-1, 0), (2**64, 0), (0, -1), (0, 2**32), (0.5, 0)])
def test_keys_that_cannot_be_are_refused(key: Any, lab: Any) -> None:
    """Nothing wraps around: seeds of 64 bits, steps of 32."""
    arms, selector = lab.arms_of(), get("random")
    with pytest.raises(ContractError, match="key is"):
        selector.select(selector.init(arms), key, [0] * 4, lab.cost_of(arms), np.ones(len(arms), bool))


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf")])
def test_seconds_that_cannot_be_are_refused(seconds: float) -> None:
    """Negative, NaN and infinite times."""
    with pytest.raises(ContractError, match="seconds is"):
        Observation(0, 0, 0, 1, (None,), seconds, [0])


@pytest.mark.parametrize(
    ("arm", "offered", "accepted", "kept"), [(1, 2, 3, 1), (1, 2, -1, 0), (1, 2, 1, 3), (1, 2, 1, -1), (-1, 0, 0, 1)]
)
def test_counts_that_cannot_be_are_refused(arm: int, offered: int, accepted: int, kept: int) -> None:
    """More accepted than offered, more kept than emitted, negative numbers."""
    with pytest.raises(ContractError, match="0 <= accepted <= offered"):
        Observation(arm, offered, accepted, kept, (None, None), 0.1, [0, 0])


@pytest.mark.parametrize("name", LEARNING)
def test_observations_of_other_arms_are_refused(name: str, lab: Any) -> None:
    """An arm that is not there, more offered than its length, too few runs."""
    arms, selector = lab.arms_of(), get(name)
    state = selector.init(arms)
    with pytest.raises(ContractError, match="arm 99"):
        selector.update(state, Observation(99, 0, 0, 1, (None,) * 4, 0.1, [0] * 4))
    with pytest.raises(ContractError, match="offered 2 tokens"):
        selector.update(state, Observation(1, 2, 0, 1, (None,) * 4, 0.1, [0] * 4))
    with pytest.raises(ContractError, match="3 runs and 4 contexts"):
        selector.update(state, Observation(1, 1, 0, 1, (None,) * 3, 0.1, [0] * 4))


def test_hits_are_zeros_and_ones() -> None:
    """A count in place of a hit is refused."""
    with pytest.raises(ContractError, match="tuple of 0 and 1"):
        Observation(0, 0, 0, 1, (None, (2,)), 0.1, [0, 0])


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("cht", "hazard_ts", "throughput_greedy")])
@pytest.mark.parametrize("x", [-0.01, 1.01, 3.0, float("nan")])
def test_a_reward_outside_the_unit_interval_is_refused(name: str, x: float, lab: Any) -> None:
    """Accepted counts are not rewards: 3 does not reach a Beta law or a UCB bonus."""
    selector = get(name)
    assert selector.update_reward is not None
    with pytest.raises(ContractError, match="reward is"):
        selector.update_reward(selector.init(lab.arms_of()), 1, x)


@pytest.mark.parametrize("name", ALL)
def test_plain_decoding_alone_is_a_choice(name: str) -> None:
    """No draft at all: one arm, always taken."""
    arms, selector = Arms.of({}), get(name)
    state = selector.init(arms)
    for step in range(3):
        arm, info = selector.select(state, (0, step), [0], [0.01], np.array([True]))
        state = selector.update(state, Observation(0, 0, 0, 1, (None,), 0.01, info.context, info.propensity))
        assert arm == 0
    assert len(arms) == 1


@pytest.mark.parametrize("name", ALL)
def test_only_active_arms_are_taken(name: str, lab: Any) -> None:
    """With a mask, whatever was learned; inactive arms score minus infinity."""
    arms = lab.arms_of()
    selector: Selector = get(name, arm="ngram/8") if name == "fixed" else get(name)
    state, _ = lab.wander(selector, arms, 50)
    active = np.array([g in (0, 3) for g in arms.length])
    for step in range(30):
        arm, info = selector.select(state, (1, step), [0] * 4, lab.cost_of(arms), active)
        assert active[arm]
        assert np.isneginf(info.scores[~active]).all()
        assert not np.isnan(info.scores[active]).any()
        assert (info.scores[active] > -np.inf).all()


def test_fixed_takes_its_arm_or_plain_decoding(lab: Any) -> None:
    """The named arm while it is active, then arm 0, never a neighbour."""
    arms, selector = lab.arms_of(), get("fixed", arm="model/2")
    cost, active = lab.cost_of(arms), np.ones(len(arms), bool)
    place = arms.names.index("model/2")
    assert selector.select(selector.init(arms), (0, 0), [0] * 4, cost, active)[0] == place
    active[place] = False
    assert selector.select(selector.init(arms), (0, 0), [0] * 4, cost, active)[0] == 0
    with pytest.raises(UnknownName, match=r"unknown arm 'model/9'; known: .*model/3"):
        get("fixed", arm="model/9").init(arms)


def test_random_takes_every_active_arm_equally_often(lab: Any) -> None:
    """4,000 keys over 5 active arms: chi-square below 33 (4 degrees: once in a million); propensity 1/5."""
    arms, selector = lab.arms_of(), get("random")
    state, active = selector.init(arms), np.arange(len(arms)) < 5
    counts = np.zeros(len(arms))
    for step in range(4000):
        arm, info = selector.select(state, (3, step), [0] * 4, lab.cost_of(arms), active)
        counts[arm] += 1
    assert ((counts[:5] - 800) ** 2 / 800).sum() < 33
    assert info.propensity == pytest.approx(0.2)


def test_names_and_options_that_are_not_known_are_listed() -> None:
    """Errors name what there is."""
    assert set(ALL) <= set(names())
    assert get().name == "cht"
    with pytest.raises(UnknownName, match=r"unknown selector 'ucb2'; known: .*cht.*ucb1"):
        get("ucb2")
    with pytest.raises(ContractError, match="no option temperature; allowed: rates"):
        get("cht", temperature=1)
    with pytest.raises(ContractError, match="selector ucb1 with options"):
        get("ucb1", breadth=1)
    with pytest.raises(ContractError, match="width is -1"):
        get("ucb1", width=-1)
    with pytest.raises(BackendUnavailable, match="cannot be loaded"):
        get("no_such_module:selector")
    with pytest.raises(ContractError, match="no signature"):
        get("builtins:dict")
    with pytest.raises(ContractError, match="allowed: a Selector"):
        get("fractions:Fraction")
    assert get("flashspec.selectors.ucb1:ucb1", width=0.5).config == {"width": 0.5}


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("cht", {"rates": ()}),
        ("cht", {"rates": (1.1,)}),
        ("cht", {"phi": 0.0}),
        ("cht", {"share": -0.1}),
        ("cht", {"pool": float("nan")}),
        ("cht", {"contexts": 0}),
        ("hazard_ts", {"rate": 1.5}),
        ("adaptive_ts", {"threshold": 2}),
        ("adaptive_ts", {"drop": 0}),
    ],
)
def test_constants_that_cannot_be_are_refused(name: str, config: dict[str, Any]) -> None:
    """Rates outside (0, 1], shares outside [0, 1], NaN."""
    with pytest.raises(ContractError, match="allowed"):
        get(name, **config)


@pytest.mark.parametrize(
    ("lengths", "tiers", "words"),
    [
        ({"a": ()}, {}, "at least one, ascending"),
        ({"a": (2, 1)}, {}, "at least one, ascending"),
        ({"a": (1, 1)}, {}, "at least one, ascending"),
        ({"a": (0, 1)}, {}, "lengths 1 to 65535|none twice"),
        ({"a": (70000,)}, {}, "lengths 1 to 65535"),
        ({"none": (1,)}, {}, "no name twice"),
        ({"a": (1,)}, {"b": 0}, "tiers name b"),
        ({"a": (1,)}, {"a": 3}, "one of 0, 1, 2"),
    ],
)
def test_arms_that_cannot_be_are_refused(lengths: dict[str, Any], tiers: dict[str, int], words: str) -> None:
    """Lengths out of order, below 1 or absent; names twice; unknown tiers."""
    with pytest.raises(ContractError, match=words):
        Arms.of(lengths, tiers)


def test_arms_are_values_in_a_fixed_order() -> None:
    """Names, equality and read-only arrays."""
    arms = Arms.of({"ngram": (1, 2), "model": (2,)}, {"ngram": 0})
    assert arms.names == ("none", "ngram/1", "ngram/2", "model/2")
    assert arms.tier == (0, 0, 2)
    assert arms == Arms.of({"ngram": (1, 2), "model": (2,)}, {"ngram": 0})
    assert arms != Arms.of({"ngram": (1, 3), "model": (2,)}, {"ngram": 0})
    assert hash(arms) == hash(Arms.of({"ngram": (1, 2), "model": (2,)}, {"ngram": 0}))
    with pytest.raises(ContractError, match="shapes"):
        Arms(("none", "a"), [0, 1], [0], (0, 2))
    with pytest.raises(ContractError, match="none twice"):
        Arms(("none",), [], [], (0,))
    with pytest.raises(ValueError, match="read-only"):
        arms.length[0] = 3


def test_the_choice_of_one_request_is_that_of_a_batch() -> None:
    """2,000 times with many equal scores and costs: the short way of one request takes the arm of the common way."""
    luck = np.random.default_rng(3)
    scores, cost = luck.integers(0, 4, (2000, 7)) / 2.0, luck.integers(1, 3, (2000, 7)) / 2.0
    active = luck.random((2000, 7)) < 0.6
    active[:, 0] = True
    masked = np.where(active, scores, -np.inf)
    taken = [choice.first(*row) for row in zip(masked, cost, active, strict=True)]
    assert taken == choice.pick(scores, cost, active).tolist()
    assert len(set(taken)) == 7
