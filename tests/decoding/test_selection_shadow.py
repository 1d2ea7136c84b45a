"""Shadow scoring in the loop: right numbers, charged costs, and no word in what is emitted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from scipy import stats as statistics

from flashspec import registry, rng, selectors
from flashspec.contract import Domain, Sampling, Stream
from flashspec.decoding import Engine, Generation, Request, generate, start, step
from flashspec.decoding.shadow import Unscored, check_every, pasts, score, tier
from flashspec.decoding.toy import TableLM
from flashspec.drafts import ModelDrafter, NGram, Past, Scorer
from flashspec.drafts.scorer import judge
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms, Observation, Selector

BACKEND = registry.get_backend("numpy")
TARGET = TableLM.random(7, 5)


def pool(target: TableLM, names: Sequence[str]) -> tuple[Any, ...]:
    """Drafters by name: ``ngram``, another model, the target itself."""
    other = TableLM.random(target.vocab, 99, order=1, scale=1.0)
    made = {
        "ngram": NGram(longest=2),
        "other": ModelDrafter("other", other, BACKEND, lengths=(1, 2, 3)),
        "target": ModelDrafter("target", target, BACKEND, lengths=(1, 2, 3)),
    }
    return tuple(made[name] for name in names)


def engine_of(
    target: TableLM,
    names: Sequence[str] = ("ngram", "other", "target"),
    selector: Selector | str = "random",
    shadow: int = 4,
    **fields: Any,
) -> Engine:
    """An engine that scores every so many steps; its clock ticks once a reading."""
    made, ticks = pool(target, names), itertools.count()
    arms = Arms.of({d.name: d.lengths for d in made}, {d.name: tier(d, shadow) for d in made})
    parts = {
        "lm": target,
        "drafters": made,
        "backend": BACKEND,
        "selector": selectors.get(selector) if isinstance(selector, str) else selector,
        "arms": arms,
        "cost": 1.0 + 0.01 * arms.length,
        "decode": lambda ids: "".join(chr(97 + i) for i in ids),
        "clock": lambda: next(ticks) / 1000,
        "shadow": shadow,
    }
    return Engine(**{**parts, **fields})


def ask(**fields: Any) -> Request:
    """A request for 60 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 60, **fields})


@attrs.define
class Listener:
    """A selector that plays at random and keeps what it was told."""

    seen: list[Observation] = attrs.Factory(list)

    def selector(self) -> Selector:
        """The functions."""
        base = selectors.get("random")

        def update(state: Any, observation: Observation) -> Any:
            self.seen.append(observation)
            return base.update(state, observation)

        return attrs.evolve(base, update=update)


@pytest.mark.clause("STP-1")
@pytest.mark.parametrize("selector", ["random", "cht", "ucb1", "thompson"])
@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_greedy_text_is_the_same_with_and_without_scoring(selector: str, method: str) -> None:
    """Scoring and playing share caches, and no token changes."""
    plain = generate(engine_of(TARGET, (), "random", 0), ask())
    scored = generate(engine_of(TARGET, selector=selector, shadow=3, method=method), ask(seed=4))
    assert scored.token_ids == plain.token_ids
    assert sum(arm.shadow_seconds for arm in scored.stats.arms.values()) > 0


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_path_text_is_the_same_with_and_without_scoring(temperature: float) -> None:
    """A seed has one text, whatever is scored."""
    plain = generate(engine_of(TARGET, (), "random", 0, method="path"), ask(temperature=temperature, seed=9))
    for every in (1, 3):
        engine = engine_of(TARGET, selector="cht", shadow=every, method="path")
        assert generate(engine, ask(temperature=temperature, seed=9)).token_ids == plain.token_ids


@pytest.mark.clause("STP-1")
@pytest.mark.parametrize("method", ["token", "block"])
def test_sampled_tokens_follow_the_target_law_with_scoring_at_every_step(method: str) -> None:
    """Chi-square of the joint law of three tokens, 500 seeds, false-alarm rate 1e-4; cht learns from the scores."""
    target = TableLM.random(3, 8, scale=0.8)
    engine = engine_of(target, ("other", "target"), "cht", 1, method=method)
    request = ask(prompt_ids=(1, 2, 0, 1), max_new_tokens=3, temperature=0.7, top_p=0.9)
    seen = Counter(generate(engine, attrs.evolve(request, seed=seed)).token_ids for seed in range(500))
    expected = joint_law(target, request, 3)
    assert set(seen) <= set(expected)
    counts, law = np.array([seen[c] for c in expected]), np.array(list(expected.values()))
    assert float(statistics.chisquare(counts, 500 * law / law.sum()).pvalue) > 1e-4


def law_of(logits: Any, temperature: float, top_p: float) -> Any:
    """Softmax and nucleus, in float64, written without our code."""
    p = np.exp((logits - logits.max()) / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    p[order[np.cumsum(p[order]) - p[order] >= top_p]] = 0.0
    return p / p.sum()


def joint_law(target: TableLM, request: Request, size: int) -> dict[tuple[int, ...], float]:
    """Exact law of the first tokens, by enumeration."""
    laws = {}
    for text in itertools.product(range(target.vocab), repeat=size):
        weight = 1.0
        for i, token in enumerate(text):
            row = target.row((*request.prompt_ids, *text[:i]))
            weight *= law_of(row, request.temperature, request.top_p)[token]
        if weight:
            laws[text] = weight
    return laws


@pytest.mark.parametrize(("temperature", "top_p"), [(0.7, 1.0), (1.3, 0.8)])
def test_the_share_of_hits_is_the_probability_of_acceptance(temperature: float, top_p: float) -> None:
    """Tokens drawn from p are hits with probability sum min(p, q), within 4 standard errors of 4,000 draws."""
    text, size = (1, 2, 3), 4000
    drafter = pool(TARGET, ("other",))[0]
    sampling = Sampling.of(1, temperature=temperature, top_p=top_p)
    p = law_of(TARGET.row(text), temperature, top_p)
    q = law_of(drafter.lm.row(text), temperature, top_p)
    drawn = np.random.default_rng(1).choice(len(p), size, p=p).tolist()
    rows = np.tile(drafter.lm.row(text), (1, size, 1))

    def share(logs: Any) -> float:
        steps = [Unscored((t,), (logs[t],), at, 0, np.zeros(2, int)) for at, t in enumerate(drawn)]
        runs = judge(BACKEND, rows, pasts(Stream.of([5], [9]), steps), sampling, "cpu")
        return sum(run[0] for run in runs) / size

    hits, unscaled = share(np.log(np.maximum(p, 1e-300))), share(np.zeros(len(p)))
    accepted = float(np.minimum(p, q).sum())
    assert abs(hits - accepted) < 4 * np.sqrt(accepted * (1 - accepted) / size)
    copied = float((p * q).sum())
    assert abs(unscaled - copied) < 4 * np.sqrt(copied * (1 - copied) / size)
    assert abs(accepted - copied) > 0.1


def test_a_draft_equal_to_the_target_is_scored_as_always_right() -> None:
    """No row is off by one, greedy or sampled: all hits, at every step it did not play; another model misses."""
    for temperature in (0.0, 0.7, 1.3):
        ear = Listener()
        engine = engine_of(TARGET, selector=ear.selector())
        generate(engine, ask(temperature=temperature, top_p=0.9, seed=2, max_new_tokens=120))
        told = [run for seen in ear.seen for run in (seen.runs[3], *(late.runs[3] for late in seen.late)) if run]
        others = [run for seen in ear.seen for late in seen.late for run in (late.runs[2],) if run]
        assert len(told) > 15
        assert all(all(run) for run in told)
        assert any(0 in run for run in others)


def test_late_scores_belong_to_the_steps_that_the_draft_did_not_play() -> None:
    """Each late value has the tokens of its step, in order; the played draft has no score there."""
    ear = Listener()
    engine = engine_of(TARGET, ("ngram", "target"), ear.selector(), 6)
    state, steps, lates = start(engine, ask(seed=2)), [], 0
    while state.output.finish_reason is None:
        state, info = step(engine, ask(seed=2), state)
        steps.append(info)
        late = ear.seen[-1].late
        lates += len(late)
        played = max((i for i, s in enumerate(steps) if s.draft == "target"), default=-1)
        window = steps[max(len(steps) - 6, played + 1) : -1]
        if len(steps) % 6 == 0:
            assert [x.kept for x in late] == [s.kept for s in window]
        else:
            assert not late
            assert ear.seen[-1].runs[2] is None
    assert lates > 5


def test_coins_are_of_the_selection_domain_and_below_the_targets_probability() -> None:
    """The numbers that judge a score are no acceptance coins, and are scaled by p."""
    steps = [Unscored((1, 2), (np.log(0.5), np.log(0.25)), 7, 0, np.zeros(2, int))]
    stream = Stream.of([11], [30])
    at = Stream.of([11], [7])
    for domain, equal in ((Domain.SELECT, True), (Domain.ACCEPT, False)):
        drawn = rng.unit32(rng.coins(at, domain, np.arange(2)[None]))[0]
        wanted = tuple(int(x) for x in np.floor(drawn * [0.5, 0.25] * 2.0**32))
        assert (pasts(stream, steps)[0].coins == wanted) is equal


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (1, 3, 2)])
def test_after_a_score_the_next_draft_is_that_of_a_fresh_start(sizes: tuple[int, ...]) -> None:
    """Scoring is the cache's catch-up: nothing is missing, nothing twice."""
    drafter, sampling = pool(TARGET, ("other",))[0], Sampling.of(1, temperature=0.7)
    text: tuple[int, ...] = (1, 2, 4)
    state = drafter.start(text)
    for round_ in range(3):
        steps = [Past(tuple((round_ + i) % 7 for i in range(size)), (0,) * size) for size in sizes]
        for past in steps:
            state, text = drafter.extend(state, past.tokens), (*text, *past.tokens)
        runs, state = drafter.score(state, steps, sampling)
        assert len(runs) == len(steps)
        assert drafter.lm.length(state.cache) == len(text) - 1
        stream = Stream.of([1], [len(text)])
        draft, moved = drafter.propose(state, 3, sampling, stream)
        assert draft.tokens == drafter.propose(drafter.start(text), 3, sampling, stream)[0].tokens
        state = drafter.extend(moved, (5,))
        text = (*text, 5)


def test_steps_that_the_cache_has_read_are_not_scored() -> None:
    """Their rows of logits are gone; the steps after them are scored all the same."""
    drafter, sampling = pool(TARGET, ("other",))[0], Sampling.of(1, temperature=0.0)
    state = drafter.extend(drafter.start((1, 2)), (3, 4))
    _, state = drafter.propose(state, 1, sampling, Stream.of([1], [4]))
    state = drafter.extend(drafter.extend(state, (0,)), (6, 6))
    steps = [Past(tokens, (0,) * len(tokens)) for tokens in ((3, 4), (0,), (6, 6))]
    runs, _ = drafter.score(state, steps, sampling)
    assert runs[:2] == (None, None)
    assert runs[2] is not None


def test_a_full_context_of_the_draft_ends_its_scoring() -> None:
    """Where the draft's own context ends there is no score, and no error."""
    short = ModelDrafter("short", TableLM.random(7, 3, max_length=4), BACKEND)
    state = short.extend(short.start((1, 2, 3)), (4, 5, 6))
    runs, after = short.score(state, [Past((4, 5, 6), (0, 0, 0))], Sampling.of(1))
    assert (runs, after) == ((None,), state)


def test_scoring_between_propose_and_extend_is_an_error() -> None:
    """A state that waits for its verdict is not used."""
    drafter = pool(TARGET, ("other",))[0]
    _, state = drafter.propose(drafter.start((1,)), 2, Sampling.of(1), Stream.of([1], [1]))
    with pytest.raises(RuntimeError, match="extend"):
        drafter.score(state, [Past((1,), (0,))], Sampling.of(1))


def test_the_cost_of_scoring_is_charged_and_told_by_draft() -> None:
    """Seconds by draft are in the statistics and inside the request's time; without scoring there are none."""
    with_it = generate(engine_of(TARGET, selector="cht"), ask(temperature=0.7)).stats
    assert with_it.arms["other"].shadow_seconds > 0
    assert with_it.arms["ngram"].shadow_seconds == 0
    assert sum(a.shadow_seconds for a in with_it.arms.values()) < with_it.seconds
    without = generate(engine_of(TARGET, selector="cht", shadow=0), ask(temperature=0.7)).stats
    assert all(a.shadow_seconds == 0 for a in without.arms.values())


@pytest.mark.parametrize("every", [1, 2, 5])
def test_drafts_are_scored_at_every_so_many_steps(every: int) -> None:
    """The period is that of the option."""
    generation = Generation(engine_of(TARGET, selector="random", shadow=every), ask())
    scored = []
    for number, _ in enumerate(generation, start=1):
        if generation.last is not None and generation.last.shadow_seconds:
            scored.append(number)
    steps = generation.partial.stats.steps
    assert scored == list(range(every, steps + 1, every))


def test_a_period_below_zero_is_refused() -> None:
    """By name, with what is allowed."""
    with pytest.raises(ContractError, match="shadow is -1"):
        check_every(-1)


def test_what_a_draft_can_be_scored_for_decides_its_tier() -> None:
    """Free ones at each step, scorers now and then, all others only when they play; a declaration, not a guess."""

    @attrs.frozen
    class Lookalike:
        name: str = "lookalike"
        free: bool = False

        def score(self, state: Any, steps: Any, sampling: Any) -> Any:
            raise AssertionError

    ngram, other = pool(TARGET, ("ngram", "other"))
    scores: bool = isinstance(other, Scorer)
    assert scores
    lookalike: Any = Lookalike()
    assert [tier(d, 16) for d in (ngram, other, lookalike)] == [0, 1, 2]
    assert tier(other, 0) == 2


def test_the_law_test_sees_a_wrong_temperature() -> None:
    """Negative control: the same statistic rejects tokens of another temperature."""
    target = TableLM.random(3, 8, scale=0.8)
    engine = engine_of(target, ("other", "target"), "cht", 1)
    request = ask(prompt_ids=(1, 2, 0, 1), max_new_tokens=3, temperature=0.7)
    wrong = attrs.evolve(request, temperature=0.35)
    seen = Counter(generate(engine, attrs.evolve(wrong, seed=seed)).token_ids for seed in range(500))
    expected = joint_law(target, request, 3)
    counts, law = np.array([seen[c] for c in expected]), np.array(list(expected.values()))
    assert float(statistics.chisquare(counts, 500 * law / law.sum()).pvalue) < 1e-4


def test_cht_finds_a_good_draft_that_it_never_played() -> None:
    """From scores alone: where only plain steps were played, the good draft's score passes the poor one's."""
    engine = engine_of(TARGET, ("other", "target"), "cht", 4)
    choose = engine.selector.select
    plain_only = attrs.evolve(engine.selector, select=lambda s, k, c, cost, a: choose(s, k, c, cost, NONE))
    state = start(engine, ask(temperature=0.7))
    for _ in range(24):
        state, _ = step(attrs.evolve(engine, selector=plain_only), ask(temperature=0.7), state)
    arm, info = engine.selector.select(state.selector, (0, 99), np.zeros(3, int), engine.cost, np.ones(7, bool))
    assert engine.arms.names[arm] == "target/3"
    assert info.scores[engine.arms.draft == 2].min() > info.scores[engine.arms.draft == 1].max()


NONE = np.array([True, *[False] * 6])
"""Plain decoding alone is active."""


def test_a_played_step_is_not_counted_twice() -> None:
    """Even if a scorer answers for a step that it played, which its own run already tells."""

    @attrs.frozen
    class Eager(Scorer):
        name: str = "eager"
        free: bool = False

        def score(self, state: Any, steps: Any, sampling: Any) -> Any:
            return tuple((1,) * len(past.tokens) for past in steps), state

    eager: Any = Eager()
    steps = [Unscored((1, 2), None, 7 + 2 * at, at % 2, np.zeros(2, int)) for at in range(4)]
    found = score((eager,), (None,), steps, Sampling.of(1, temperature=0.0), Stream.of([1], [9]), lambda: 0.0)
    assert [late.runs[1] for late in found.late] == [(1, 1), (1, 1)]
    assert found.runs == {}
