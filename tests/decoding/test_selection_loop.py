"""Selection in the loop: warm start, fresh costs, shared states, drafts that fail, the selector's own time."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import selectors
from flashspec.decoding import CostTable, DraftLost, Engine, Generation, Request, Shared, generate, start, step
from flashspec.decoding.timings import ENOUGH, KEPT, REFRESH, Timings
from flashspec.decoding.toy import TableLM
from flashspec.decoding.warmstart import WINDOW, prior, takes_prior
from flashspec.drafts import ModelDrafter, NGram, Suffix
from flashspec.errors import ContractError
from flashspec.selectors.types import Arms

Build = Callable[..., Engine]
TARGET = TableLM.random(7, 5)
TABLE = CostTable({1: 1.0, 2: 1.1, 5: 1.5}, {"ngram": 0.0, "other": 0.3})


def ask(**fields: Any) -> Request:
    """A greedy request for 40 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 40, **fields})


# --- warm start


def test_the_prompt_is_read_as_the_draft_would_have_decoded_it() -> None:
    """A run ends at the first miss, the next step begins behind it, and steps without a proposal say nothing."""
    text = (5, 1, 2, 3, 4, 1, 2, 3, 6)
    found = prior((NGram(longest=2, lengths=(1, 4)),), text)
    # Nothing matches until the second 1; then 2 3 hit and 4 misses at the 6.
    assert found == {"ngram": [(0, (1, 1, 0))]}
    assert prior((NGram(),), (3,)) == {"ngram": []}


def test_long_prompts_are_read_at_their_end_only() -> None:
    """The cost of a warm start does not grow with the prompt."""
    asked: list[int] = []

    @attrs.frozen
    class Counting(Suffix):
        def propose(self, state: Any, length: int, sampling: Any, stream: Any) -> Any:
            asked.append(len(state))
            return super().propose(state, length, sampling, stream)

    prior((Counting(),), tuple(np.random.default_rng(1).integers(0, 99, 2000).tolist()))
    assert min(asked) == 2000 - WINDOW
    assert len(asked) <= WINDOW


def test_a_warm_start_changes_the_first_choice_and_switching_it_off_takes_it_back(build: Build) -> None:
    """A prompt that repeats itself makes the first draft a long one; greedy text is the same."""
    prompt = (1, 2, 3, 4, 5, 6) * 6
    cold = attrs.evolve(build(TARGET, ["suffix"], "cht"), cost=1.0 + 0.2 * np.arange(9))
    warm = attrs.evolve(cold, warm=True)
    first = [step(e, ask(prompt_ids=prompt), start(e, ask(prompt_ids=prompt)))[1] for e in (cold, warm)]
    assert first[0].arm < first[1].arm
    assert generate(warm, ask(prompt_ids=prompt)).token_ids == generate(cold, ask(prompt_ids=prompt)).token_ids


def test_selectors_that_take_no_prior_start_as_ever(build: Build) -> None:
    """Which ones do is read off their signature."""
    assert takes_prior(selectors.get("cht"))
    assert not takes_prior(selectors.get("ucb1"))
    assert generate(attrs.evolve(build(TARGET, ["suffix"], "ucb1"), warm=True), ask()).token_ids


# --- fresh costs


def fed(steps: Any, timings: Timings | None = None) -> Timings:
    """Timings after steps ``(width, seconds)``."""
    timings = Timings(TABLE) if timings is None else timings
    for width, seconds in steps:
        timings = timings.add(width, seconds, "none", 0, 0.0)
    return timings


def test_one_hiccup_changes_no_cost() -> None:
    """Medians of several steps: one clock reading decides nothing."""
    calm = fed([(2, 1.1)] * KEPT)
    shaken = fed([(2, 1.1)] * (KEPT - 1) + [(2, 90.0)])
    assert shaken.fresh().target == pytest.approx(calm.fresh().target)
    few = fed([(2, 9.0)] * (ENOUGH - 1))
    assert few.fresh().target == pytest.approx(TABLE.target)


def test_a_machine_that_is_slower_throughout_changes_no_choice() -> None:
    """All costs grow alike, those of widths that were not measured too."""
    slow = fed([(1, 2.0), (2, 2.2)] * KEPT).fresh()
    for width in TABLE.target:
        assert slow.target[width] == pytest.approx(2 * TABLE.target[width])
    assert slow.draft["other"] == pytest.approx(0.6)


def test_a_width_that_differs_from_its_table_gets_its_own_cost() -> None:
    """Among steps that are as in the table, width 5 takes twice as long, and goes back when it does not."""
    mixed = fed([(1, 1.0), (1, 1.0), (5, 3.0)] * KEPT)
    assert mixed.fresh().target == pytest.approx({1: 1.0, 2: 1.1, 5: 3.0})
    assert fed([(1, 1.0), (5, 1.5)] * KEPT, mixed).fresh().target == pytest.approx(TABLE.target)


def test_a_drafts_own_cost_is_learned_per_token() -> None:
    """Four tokens in two seconds are half a second each; lookups, whose table says 0, stay free."""
    timings = Timings(TABLE)
    for _ in range(ENOUGH):
        timings = timings.add(5, 1.5, "other", 4, 2.0).add(5, 1.5, "ngram", 4, 0.1)
    assert timings.fresh().draft == pytest.approx({"ngram": 0.0, "other": 0.5})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
def test_times_that_cannot_be_are_refused_by_name(bad: float) -> None:
    """A broken clock is no measurement."""
    with pytest.raises(ContractError, match="width 2 is"):
        Timings(TABLE).add(2, bad, "none", 0, 0.0)
    with pytest.raises(ContractError, match="draft other is"):
        Timings(TABLE).add(2, 1.0, "other", 1, bad)


def uneven(engine: Engine) -> Engine:
    """Drafts measured as nearly free at start, on a clock by which every step takes as long."""
    table = CostTable({1: 1.0, 2: 0.01, 3: 0.01, 4: 0.01, 5: 0.01, 17: 0.01}, {})
    return attrs.evolve(engine, table=table, cost=table.of(engine.arms))


def test_the_fresh_table_is_what_selection_gets(build: Build) -> None:
    """Costs that are far off are corrected by the steps made; without a table they stay."""
    prices: list[Any] = []

    def listening(engine: Engine) -> Engine:
        inner = engine.selector

        def select(state: Any, key: Any, context: Any, cost: Any, active: Any) -> Any:
            prices.append(np.array(cost))
            return inner.select(state, key, context, cost, active)

        return attrs.evolve(engine, selector=attrs.evolve(inner, select=select))

    engine = listening(uneven(build(TARGET, ["suffix"], "random")))
    generate(engine, ask(max_new_tokens=160))
    assert np.array_equal(prices[0], prices[REFRESH - 1])
    assert np.ptp(prices[0] / prices[0][0]) > 0.9
    assert prices[-1][0] / prices[-1][1] < 0.1 * prices[0][0] / prices[0][1]
    prices.clear()
    generate(attrs.evolve(engine, table=None), ask(max_new_tokens=160))
    assert all(np.array_equal(price, prices[0]) for price in prices)


@pytest.mark.parametrize(("temperature", "method", "fresh"), [(0.7, "token", 0), (0.7, "path", 1), (0.0, "token", 1)])
def test_a_clock_never_decides_which_text_a_seed_has(build: Build, temperature: float, method: str, fresh: int) -> None:
    """Where drafts decide which lawful text comes out, costs stay; elsewhere they follow the clock."""
    engine = attrs.evolve(uneven(build(TARGET, ["suffix", "other"], "cht")), method=method)
    request = ask(temperature=temperature, seed=3, max_new_tokens=120)
    state = start(engine, request)
    while state.output.finish_reason is None:
        state, _ = step(engine, request, state)
    assert (state.cost is not None) == bool(fresh)
    ticks = itertools.count()
    slow = attrs.evolve(engine, clock=lambda: next(ticks) ** 2 / 7)
    assert generate(slow, request).token_ids == state.output.token_ids


# --- shared states


def test_what_one_request_learned_serves_the_next(build: Build) -> None:
    """A shared state goes on growing, from interleaved requests too; without it each begins anew."""
    engine = build(TARGET, ["suffix"], "cht")
    shared = Shared()
    generate(engine, ask(), shared=shared)
    first = shared.state
    second = Generation(engine, ask(), shared=shared)
    assert second.selector is first
    third = Generation(engine, ask(prompt_ids=(4, 4)), shared=shared)
    for _ in zip(second, third, strict=False):
        assert third.selector is shared.state
    assert shared.state is not first
    alone = generate(engine, ask())
    assert second.partial.token_ids == alone.token_ids[: len(second.partial.token_ids)]


def test_a_state_and_a_shared_state_exclude_each_other(build: Build) -> None:
    """One of them would be ignored."""
    engine = build(TARGET, ["suffix"], "cht")
    with pytest.raises(ContractError, match="one of them"):
        Generation(engine, ask(), selector=engine.selector.init(engine.arms), shared=Shared())


# --- drafts that fail


@attrs.frozen
class Failing(NGram):
    """An n-gram draft whose method of a name fails at its third call."""

    name: str = "failing"
    where: str = "propose"
    calls: Any = attrs.field(factory=lambda: itertools.count(1))

    def _maybe(self, name: str) -> None:
        if name == self.where and (name == "start" or next(self.calls) > 2):
            raise MemoryError("out of memory\nat some place")

    def start(self, prompt: Any) -> Any:
        """As the n-gram's."""
        self._maybe("start")
        return super().start(prompt)

    def extend(self, state: Any, tokens: Any) -> Any:
        """As the n-gram's."""
        self._maybe("extend")
        return super().extend(state, tokens)

    def propose(self, state: Any, length: int, sampling: Any, stream: Any) -> Any:
        """As the n-gram's."""
        self._maybe("propose")
        return super().propose(state, length, sampling, stream)


def pooled(engine: Engine, *drafters: Any) -> Engine:
    """The engine with another pool."""
    arms = Arms.of({d.name: d.lengths for d in drafters}, {d.name: 0 if d.free else 2 for d in drafters})
    return attrs.evolve(engine, drafters=drafters, arms=arms, cost=1.0 + 0.01 * np.asarray(arms.length))


@pytest.mark.parametrize("where", ["start", "extend", "propose"])
@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_draft_that_fails_is_left_out_and_the_text_goes_on(
    build: Build, where: str, free: bool, temperature: float
) -> None:
    """One warning with the reason, no step with it afterwards, the tokens of plain decoding."""
    base = attrs.evolve(build(TARGET, [], "random"), method="path")
    request = ask(temperature=temperature, seed=5)
    engine = pooled(base, Failing(where=where, free=free), Suffix())
    generation = Generation(engine, request)
    says = "draft failing failed .MemoryError: out of memory.; the request goes on"
    with pytest.warns(DraftLost, match=says) as told:
        infos = [generation.last for _ in generation if generation.last is not None]
    assert len(told) == 1
    assert generation.partial.token_ids == generate(base, request).token_ids
    gone = next(i for i, info in enumerate(infos) if info.lost)
    assert gone < 10
    assert all(info.draft != "failing" for info in infos[gone + 1 :])
    assert generation.partial.stats.lost == {"failing": "MemoryError: out of memory"}


@attrs.frozen
class Torn(ModelDrafter):
    """A model draft that cannot be scored."""

    def score(self, state: Any, steps: Any, sampling: Any) -> Any:
        """Fails."""
        raise RuntimeError("no weights")


def test_a_draft_that_fails_at_being_scored_is_left_out_too(build: Build) -> None:
    """Scoring runs the draft's model as well."""
    base = build(TARGET, [], "cht")
    engine = attrs.evolve(pooled(base, Torn("torn", TARGET, base.backend, lengths=(1, 2)), Suffix()), shadow=4)
    with pytest.warns(DraftLost, match="draft torn failed .RuntimeError: no weights"):
        result = generate(engine, ask())
    assert result.token_ids == generate(base, ask()).token_ids


def test_when_every_draft_has_failed_decoding_is_plain(build: Build) -> None:
    """No draft is left, arm 0 is; and an empty pool is plain decoding from the start."""
    base = build(TARGET, [], "random")
    engine = pooled(base, Failing(where="start"))
    with pytest.warns(DraftLost):
        result = generate(engine, ask())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = generate(base, ask())
    assert result.token_ids == plain.token_ids
    assert result.stats.steps == plain.stats.steps == 40
    assert result.stats.arms["failing"].pulls == 0


# --- the selector's own time


def test_the_selectors_own_time_is_told_apart(build: Build) -> None:
    """A slow selector shows in its own seconds; they are part of the request's."""
    now = [0.0]
    engine = attrs.evolve(build(TARGET, ["suffix"], "cht"), clock=lambda: now[0])
    inner = engine.selector

    def select(*given: Any) -> Any:
        now[0] += 3.0
        return inner.select(*given)

    def update(*given: Any) -> Any:
        now[0] += 4.0
        return inner.update(*given)

    engine = attrs.evolve(engine, selector=attrs.evolve(inner, select=select, update=update))
    stats = generate(engine, ask()).stats
    assert stats.selector_seconds == 7.0 * stats.steps
    assert stats.seconds == stats.selector_seconds
    assert sum(arm.emitted for arm in stats.arms.values()) <= stats.emitted


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("table", [True, False])
def test_a_broken_clock_is_refused_by_name(build: Build, bad: float, table: bool) -> None:
    """NaN, infinite and backward times, with and without fresh costs: an error that names them, never a wrong cost."""
    engine = build(TARGET, ["suffix"], "cht")
    engine = uneven(engine) if table else engine
    ticks = itertools.count()
    broken = attrs.evolve(engine, clock=lambda: bad * n if (n := next(ticks)) > 20 else float(n))
    with pytest.raises(ContractError, match=r"seconds is (nan|inf|-)|the time of .* is (nan|inf|-)"):
        generate(broken, ask())


@pytest.mark.parametrize("name", ["cht", "hazard_ts", "adaptive_ts", "exp3s", "hf_heuristic:suffix", "mixture"])
def test_one_arm_beside_none_is_enough(build: Build, name: str) -> None:
    """The smallest pool: one draft of one length, and the text of plain decoding."""
    base = build(TARGET, [], "random")
    engine = pooled(attrs.evolve(base, selector=selectors.from_spec(name)), Suffix(lengths=(1,)))
    assert len(engine.arms) == 2
    assert generate(engine, ask()).token_ids == generate(base, ask()).token_ids
