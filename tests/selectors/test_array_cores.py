"""Every core: a batch is a loop, and NumPy, torch and the array API standard give the same arms."""

from collections.abc import Callable
from typing import Any

import array_api_strict
import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashspec.hf.selector_arrays import on_torch
from flashspec.selectors import Arms, Observation, Selector, choice, get, hazards, names
from flashspec.selectors.arrays import NUMPY, Arrays, standard, unrolled
from flashspec.selectors.pool import moved, placed, repeated
from flashspec.selectors.seen import Seen, evidence, nothing

ARMS = Arms.of({"a": (1, 2, 4), "b": (3,), "c": (1, 5)}, {"a": 0, "b": 2, "c": 1})
COST = 1.0 + 0.06 * ARMS.length + 0.1 * ARMS.draft
BATCH, D, G, M = 3, len(ARMS.drafts), ARMS.longest, len(ARMS)
CORES = ("adaptive_ts", "cht", "d_ts", "d_ucb", "exp3s", "fixed", "hazard_ts", "kl_ucb", "random", "sw_ucb", "thompson",
         "tsallis_inf", "ucb1")  # fmt: skip
HAZARDS = ("cht", "hazard_ts")


def strict_uniforms(seed: Any, step: Any, sequence: Any, index: Any) -> Any:
    """Philox is not in the standard: NumPy's."""
    given = (np.asarray(x) for x in (seed, step, sequence, index))
    return array_api_strict.asarray(NUMPY.uniforms(*given))


LIBRARIES: dict[str, Callable[[], Arrays]] = {
    "torch": on_torch,
    "array-api-strict": lambda: standard(array_api_strict, strict_uniforms),
}


@st.composite
def steps(draw: Any, soft: bool = False) -> Seen:
    """A random step of each request of a batch."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arm = rng.integers(0, M, BATCH)
    offered = rng.integers(0, ARMS.length[arm] + 1)
    accepted = rng.integers(0, offered + 1)
    kept = rng.integers(0, accepted + 2)
    hits = rng.integers(-1, 2, (BATCH, D, G)).astype(np.float64)
    if soft:
        hits = np.where(hits < 0, hits, rng.random(hits.shape))
    context, scored = rng.integers(0, 4, (BATCH, D)), rng.random((BATCH, D)) < 0.6
    return Seen(
        arm, offered, accepted, kept, context, hits, scored, rng.uniform(0.1, 1, BATCH), rng.uniform(0.2, 1, (BATCH, M))
    )


def one(seen: Seen, request: int) -> Seen:
    """The record of one request, without batch dimensions."""
    return Seen(*(np.asarray(getattr(seen, f.name)[request]) for f in attrs.fields(Seen)))


def observed(seen: Seen, request: int) -> Observation:
    """What a loop on the host would say of the same step."""
    kept, runs = int(seen.kept[request]), list[Any]()
    for d in range(D):
        run = [int(h) for h in seen.hits[request, d]]
        run = run[: run.index(-1)] if -1 in run else run
        runs.append(tuple(run) if seen.scored[request, d] else None)
    arm, offered, accepted = (int(x[request]) for x in (seen.arm, seen.offered, seen.accepted))
    told = float(seen.propensity[request]), seen.scale[request]
    return Observation(arm, offered, accepted, kept, tuple(runs), 0.1, seen.context[request], *told)


def arrays(state: Any) -> dict[str, Any]:
    """The arrays of a state by field."""
    return {f.name: getattr(state, f.name) for f in attrs.fields(type(state)) if f.name != "arms"}


def core_of(name: str) -> tuple[Selector, Any]:
    """A selector and its core."""
    selector = get(name, window=7) if name == "sw_ucb" else get(name)
    assert selector.core is not None
    return selector, selector.core


def chosen(xp: Arrays, core: Any, pool: Any, state: Any, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Scores and arms, on NumPy, in the shape of the batch."""
    seed, step, context, cost, active = (xp.place(x) for x in given)
    scores = np.asarray(core.scores(pool, state, (seed, step), context, cost, active))
    scores = np.broadcast_to(scores, (BATCH, M))
    return scores, choice.pick(scores, given[3], given[4])


def question(number: int) -> tuple[Any, ...]:
    """What a choice is asked with."""
    rng = np.random.default_rng(number)
    active = (rng.random((BATCH, M)) < 0.8) | (np.arange(M) == 0)
    seed = rng.integers(-(2**62), 2**62, BATCH)
    return seed, np.array(number), rng.integers(0, 4, (BATCH, D)), COST, active


def test_the_menu_says_which_have_a_core() -> None:
    """Those with a core are listed here and in the documentation."""
    one_draft = ("ema_tiers", "hf_heuristic")
    assert {name for name in names() if name in one_draft or get(name).core is not None} - set(one_draft) == set(CORES)


@pytest.mark.parametrize("name", CORES)
@settings(max_examples=3, deadline=None)
@given(st.lists(steps(), min_size=2, max_size=4))
def test_a_batch_is_a_loop(name: str, story: list[Seen]) -> None:
    """Three requests as one array, each alone as arrays, and each through select and update: the same."""
    selector, core = core_of(name)
    pool, many = ARMS.pool, repeated(selector.init(ARMS), BATCH)
    alone, host = [selector.init(ARMS)] * BATCH, [selector.init(ARMS)] * BATCH
    for number, seen in enumerate(story):
        many = core.learn(pool, many, seen)
        alone = [core.learn(pool, s, one(seen, r)) for r, s in enumerate(alone)]
        host = [selector.update(s, observed(seen, r)) for r, s in enumerate(host)]
        given_ = question(number)
        _, arms = chosen(NUMPY, core, pool, many, given_)
        for r in range(BATCH):
            for field, value in arrays(many).items():
                assert value[r] == pytest.approx(getattr(alone[r], field), rel=1e-12, abs=1e-12)
                assert value[r] == pytest.approx(getattr(host[r], field), rel=1e-9, abs=1e-9)
            seed, step, context, cost, active = given_
            key = (int(np.uint64(seed[r])) if seed[r] >= 0 else int(seed[r]) % 2**64, int(step))
            assert selector.select(host[r], key, context[r], cost, active[r])[0] == arms[r]


@pytest.mark.parametrize("library", list(LIBRARIES))
@pytest.mark.parametrize("name", CORES)
@settings(max_examples=3, deadline=None)
@given(st.lists(steps(), min_size=2, max_size=4))
def test_other_libraries_choose_what_numpy_chooses(name: str, library: str, story: list[Seen]) -> None:
    """The same states, scores and arms; array-api-strict has nothing that the standard does not have."""
    selector, core = core_of(name)
    xp = LIBRARIES[library]()
    there, fresh = placed(ARMS.pool, xp), repeated(selector.init(ARMS), BATCH)
    ours, theirs = fresh, moved(fresh, xp)
    for number, seen in enumerate(story):
        ours, theirs = core.learn(ARMS.pool, ours, seen), core.learn(there, theirs, moved(seen, xp))
        for field, value in arrays(ours).items():
            other = np.asarray(getattr(theirs, field))
            assert other.dtype == value.dtype
            assert other == pytest.approx(value, rel=1e-9, abs=1e-12)
        scores, arms = chosen(NUMPY, core, ARMS.pool, ours, question(number))
        other, same = chosen(xp, core, there, theirs, question(number))
        assert other == pytest.approx(scores, rel=1e-9, abs=1e-12)
        assert np.array_equal(arms, same)


@pytest.mark.parametrize("library", list(LIBRARIES))
def test_uniforms_have_the_same_bits_everywhere(library: str) -> None:
    """Seeds up to 64 bits, lanes up to 32; only integers and one exact scaling are in it."""
    rng = np.random.default_rng(3)
    seed = rng.integers(-(2**63), 2**63 - 1, (500, 1))
    sequence, index = rng.integers(0, 2**32, 7), rng.integers(0, 2**32, 7)
    given_ = (seed, np.array(2**32 - 1), sequence, index)
    xp = LIBRARIES[library]()
    there = np.asarray(xp.uniforms(*(xp.place(x) for x in given_)))
    assert np.array_equal(there, NUMPY.uniforms(*given_))
    assert there.shape == (4, 500, 7)


@pytest.mark.parametrize("size", [1, 8, 9, 30])
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_a_chain_in_blocks_is_the_loop_over_offsets(size: int, kind: str) -> None:
    """Factors from 1e-40 to 1: the scans of NumPy give what one offset after the other gives, in the same dtype."""
    rng = np.random.default_rng(size)
    keep = (10.0 ** rng.uniform(-40, 0, (3, 2, size))).astype(kind)
    keep[0], push = 1.0, rng.random((3, 2, size)).astype(kind)
    got, want = NUMPY.chain(keep, push, 0.5), unrolled(np.stack)(keep, push, 0.5)
    assert got.dtype == push.dtype
    assert got == pytest.approx(want, rel=1e-13 if kind == "float64" else 1e-5)


@settings(max_examples=40, deadline=None)
@given(steps())
def test_a_record_is_the_evidence_of_its_observation(seen: Seen) -> None:
    """Own runs, scored runs, cuts and censoring: arrays say what tuples say."""
    outcomes, drafts = evidence(ARMS.pool, seen)
    for r in range(BATCH):
        want, told = hazards.evidence(ARMS, observed(seen, r))
        assert np.array_equal(outcomes[r], want)
        assert np.array_equal(drafts[r], told)


@pytest.mark.parametrize("name", CORES)
def test_a_request_that_kept_nothing_learns_nothing(name: str) -> None:
    """The record before the first step leaves every number of the state as it is."""
    selector, core = core_of(name)
    state = repeated(selector.init(ARMS), BATCH)
    story = np.random.default_rng(1)
    for _ in range(4):
        arm = story.integers(0, M, BATCH)
        full = attrs.evolve(
            nothing(ARMS.pool, (BATCH,)), arm=arm, offered=ARMS.length[arm], kept=np.ones(BATCH, np.int64)
        )
        state = core.learn(ARMS.pool, state, full)
    after = core.learn(ARMS.pool, state, nothing(ARMS.pool, (BATCH,)))
    for field, value in arrays(state).items():
        assert getattr(after, field) == pytest.approx(value, rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(steps(soft=True))
def test_a_probability_of_acceptance_is_the_mean_over_its_outcomes(seen: Seen) -> None:
    """Soft outcomes are what hard ones, drawn with those probabilities, are on average: enumerated over 2**5 runs."""
    seen = attrs.evolve(seen, offered=np.zeros(BATCH, np.int64), kept=np.full(BATCH, G))
    got, _ = evidence(ARMS.pool, seen)
    want = np.zeros_like(got)
    for bits in range(2**G):
        run = np.array([(bits >> j) & 1 for j in range(G)], np.float64)
        known = seen.hits >= 0
        chance = np.where(known, np.where(run > 0, seen.hits, 1.0 - seen.hits), 0.5).prod(-1)
        hard, _ = evidence(ARMS.pool, attrs.evolve(seen, hits=np.where(known, run, -1.0)))
        want += chance[:, None, :, None] * hard
    assert got == pytest.approx(want, abs=1e-12)


def test_soft_outcomes_weigh_the_rates_by_what_they_forecast() -> None:
    """log weights grow by W_(j-1) (w ln h + (1 - w) ln(1 - h)), the mean over hard outcomes."""
    selector, core = core_of("cht")
    state = selector.init(ARMS)
    context = np.array([0, 2, 0, 0])
    w = np.array([0.8, 0.5, 0.0, 0.9, 0.9])
    hits = np.full((D, G), -1.0)
    hits[1] = w
    seen = attrs.evolve(nothing(ARMS.pool, ()), kept=np.array(5), hits=hits, scored=np.arange(D) == 1, context=context)
    for _ in range(3):
        h = state.hazard[:, 1, 2]
        reach = np.array([1.0, 0.8, 0.4, 0.0, 0.0])
        logs = state.log_weight[:, 1] + (reach * (w * np.log(h) + (1 - w) * np.log(1 - h))).sum(-1)
        share = 1 - 0.995**5
        law = (1 - share) * np.exp(logs) / np.exp(logs).sum() + share / 3
        state = core.learn(ARMS.pool, state, seen)
        assert np.exp(state.log_weight[:, 1]) == pytest.approx(law)


def extreme(number: int, arms: Arms) -> Seen:
    """All accepted, all rejected, or in turn, on the longest arm of each draft."""
    arm = np.array([3, 4, 6])
    offered = arms.length[arm]
    good = np.array([True, False, number % 2 == 0])
    accepted = np.where(good, offered, 0)
    hits = np.broadcast_to(np.where(good, 1.0, 0.0)[:, None, None], (BATCH, D, G)).copy()
    context, scored = np.full((BATCH, D), 3), np.ones((BATCH, D), bool)
    return Seen(arm, offered, accepted, accepted + 1, context, hits, scored, np.full(BATCH, 0.5), np.ones((BATCH, M)))


def bounded(name: str, updates: int) -> None:
    """Finite numbers, hazards inside (0, 1), weights that sum to 1, scores that are numbers."""
    selector, core = core_of(name)
    state = repeated(selector.init(ARMS), BATCH)
    for number in range(updates):
        state = core.learn(ARMS.pool, state, extreme(number, ARMS))
    for value in arrays(state).values():
        assert np.isfinite(value).all()
    scores, _ = chosen(NUMPY, core, ARMS.pool, state, question(1))
    assert not np.isnan(scores).any()
    if name == "cht":
        assert (state.hazard > 0).all()
        assert (state.hazard < 1).all()
        assert np.exp(state.log_weight).sum(-2) == pytest.approx(np.ones((BATCH, D)), abs=1e-6)


@pytest.mark.parametrize("name", CORES)
def test_extremes_stay_in_bounds(name: str) -> None:
    """2,000 updates of a batch: one request all hits, one all misses, one in turn."""
    bounded(name, 2_000)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CORES)
def test_a_million_extremes_stay_in_bounds(name: str) -> None:
    """The same a million times over: 333,334 updates of three requests."""
    bounded(name, 333_334)


def narrowed(value: Any) -> Any:
    """A state or record with its float arrays in float32."""
    fields = {k: v.astype("float32") for k, v in arrays(value).items() if v.dtype.kind == "f"}
    return attrs.evolve(value, **fields)


@pytest.mark.parametrize("name", ["adaptive_ts", "cht", "hazard_ts", "thompson", "ucb1"])
def test_float32_takes_the_arms_of_float64(name: str) -> None:
    """From the same 1,200 steps of three requests at least 99.9 % of arms agree, and the state stays float32.

    ``adaptive_ts`` compares a weight with a threshold, on whose other side a rounding may land: 99.5 %.
    """
    selector, core = core_of(name)
    wide = repeated(selector.init(ARMS), BATCH)
    narrow, rng, same = narrowed(wide), np.random.default_rng(5), 0
    kinds = {k: v.dtype for k, v in arrays(narrow).items()}
    for number in range(1_200):
        _, arm = chosen(NUMPY, core, ARMS.pool, wide, question(number))
        same += int((chosen(NUMPY, core, ARMS.pool, narrow, question(number))[1] == arm).sum())
        offered, hard = ARMS.length[arm], number // 40 % 2
        accepted = np.minimum(rng.geometric(0.6 if hard else 0.2, BATCH) - 1, offered)
        hits = (rng.random((BATCH, D, G)) < (0.3 if hard else 0.8)).astype(np.float64)
        context, scored = rng.integers(0, 4, (BATCH, D)), np.broadcast_to(np.arange(D) == 1, (BATCH, D))
        told = np.full(BATCH, 0.4), np.ones((BATCH, M))
        seen = Seen(arm, offered, accepted, accepted + 1, context, hits, scored, *told)
        wide, narrow = core.learn(ARMS.pool, wide, seen), core.learn(ARMS.pool, narrow, narrowed(seen))
    assert {k: v.dtype for k, v in arrays(narrow).items()} == kinds
    assert same > (0.995 if name == "adaptive_ts" else 0.999) * 1_200 * BATCH
