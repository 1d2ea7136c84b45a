"""The batch: a request's tokens are those it gets alone, whoever its neighbours are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec import selectors
from flashspec.contract import Sparse
from flashspec.decoding import Engine, Request, Result, generate
from flashspec.decoding.batch import BatchEngine, begin, join, leave, step
from flashspec.decoding.batch_cost import BatchCost
from flashspec.decoding.batch_lm import Separate
from flashspec.decoding.batch_loop import Batch, generate_all
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Draft
from flashspec.errors import ContractError, NumericalError
from flashspec.selectors.types import Arms

Build = Callable[..., Engine]
DRAFTS = ("ngram", "suffix", "other", "target")
ONE_HOT = ("ngram", "suffix")


def ask(**fields: Any) -> Request:
    """A greedy request for 24 tokens."""
    return Request(**{"prompt_ids": (1, 2, 3, 1, 2), "max_new_tokens": 24, **fields})


def together(engine: Engine, largest: int = 9, **fields: Any) -> BatchEngine:
    """The engine for several requests; a step costs a second, a token a hundredth."""
    widths = (1, 2, 4, 8, 17)
    cost = {(b, w): 1.0 + 0.01 * b * w for b in range(1, largest + 1) for w in widths}
    return BatchEngine(engine, Separate(engine.lm, np.concatenate), BatchCost(cost, {}), **fields)


MENU = (
    ask(temperature=0.7, top_k=3, seed=1, max_new_tokens=11),
    ask(prompt_ids=(4,), eos_ids={0, 5}),
    ask(prompt_ids=(6, 6, 6, 2, 6, 6), temperature=1.3, top_p=0.8, seed=2, max_new_tokens=30),
    ask(prompt_ids=(3, 1, 4, 1, 5), stop=("gb", "cc"), temperature=1.0, min_p=0.05, seed=3),
    ask(prompt_ids=(2, 2), eos_ids={1, 2, 3, 4}, min_new_tokens=6, temperature=0.7, seed=4),
    ask(max_new_tokens=1, seed=9, temperature=1.3),
    ask(max_new_tokens=0),
    ask(repetition_penalty=1.4, presence_penalty=0.3, no_repeat_ngram=3, seed=6, logprobs=2),
    ask(temperature=0.7, top_p=0.9, frequency_penalty=0.5, bad_words=((1, 2), (6,)), seed=7, logprobs=1,
        logprobs_of="processed"),
)  # fmt: skip
"""Greedy, temperatures, filters, EOS, stop strings, minimal lengths, budgets of 0 and 1, penalties, bans, logprobs."""


def content(result: Result) -> tuple[Any, ...]:
    """All of a result but its times."""
    stats = result.stats
    counts = (stats.steps, stats.drafted, stats.accepted, stats.emitted)
    arms = {name: (arm.pulls, arm.drafted, arm.accepted, arm.score) for name, arm in stats.arms.items()}
    return result.token_ids, result.text, result.finish_reason, counts, arms, result.origins, result.logprobs


@pytest.mark.parametrize("drafts", [(), ONE_HOT, DRAFTS], ids=["plain", "lookups", "all"])
@pytest.mark.parametrize("method", ["token", "block", "path"])
def test_alone_batched_and_permuted_give_the_same_results(build: Build, drafts: Sequence[str], method: str) -> None:
    """Tokens, texts, ends and counts of nine unlike requests, one greedy, ragged drafts of all kinds."""
    engine = build(TableLM.random(7, 21), drafts, "random", method=method)
    alone = [content(generate(engine, request)) for request in MENU]
    batch = together(engine)
    assert [content(r) for r in generate_all(batch, MENU)] == alone
    assert [content(r) for r in generate_all(batch, MENU[::-1])] == alone[::-1]
    assert [content(r) for r in generate_all(batch, MENU, largest=2)] == alone
    if drafts:
        assert any(0 < accepted < drafted for _, _, _, (_, drafted, accepted, _), *_ in alone)


def test_one_verification_serves_all_kinds_of_draft(build: Build) -> None:
    """A step with one-hot, sampled and no drafts of unlike lengths asks target and backend once."""
    target = TableLM.random(7, 22)
    engine = build(target, DRAFTS, "random")
    calls: list[tuple[int, ...]] = []

    class Watched:
        """The NumPy backend, counting."""

        name, capabilities = engine.backend.name, engine.backend.capabilities
        asarray, to_numpy, sample, concat = (
            engine.backend.asarray, engine.backend.to_numpy, engine.backend.sample, engine.backend.concat
        )  # fmt: skip

        def verify(self, logits: Any, drafts: Any, *rest: Any) -> Any:
            calls.append(tuple((drafts >= 0).sum(1)))
            return engine.backend.verify(logits, drafts, *rest)

    batch = together(attrs.evolve(engine, backend=Watched()))
    state = begin(batch)
    for key in range(5):
        state = join(batch, state, key, ask(seed=key, temperature=0.7 * (key % 3), max_new_tokens=99))
    kinds: set[str] = set()
    for count in range(1, 11):
        state, told = step(batch, state)
        assert len(calls) == count
        assert calls[-1] == tuple(info.offered for info in told.members if info is not None)
        kinds |= {info.draft for info in told.members if info is not None}
        assert batch.lm.lengths(state.cache) == tuple(len(m.state.tokens) - 1 for m in state.members)
    assert kinds >= {"none", "ngram", "other", "target"}
    assert any(len(set(widths)) > 2 for widths in calls)


def test_a_sparse_proposal_goes_through(build: Build) -> None:
    """A drafter with small tables beside other kinds: full acceptance where its law is the target's."""
    target = TableLM.random(7, 23)

    @attrs.frozen
    class Tables:
        name: str = "tables"
        lengths: tuple[int, ...] = (1,)
        free: bool = False

        def start(self, prompt: Any) -> tuple[int, ...]:
            return tuple(prompt)

        def extend(self, state: tuple[int, ...], tokens: Any) -> tuple[int, ...]:
            return (*state, *tokens)

        def propose(self, state: Any, length: int, sampling: Any, stream: Any) -> tuple[Draft, Any]:
            row = target.row(state) / 0.7
            law = np.exp(row - row.max())
            token = int(law.argmax())
            logs = np.log(law / law.sum())[None, None]
            return Draft((token,), Sparse(np.arange(7)[None, None], logs)), state

    engine = build(target, ["target"], selectors.get("random"))
    arms = Arms.of({"tables": (1,), "target": (1, 2)})
    cost = np.array([1.0] * len(arms))
    engine = attrs.evolve(engine, drafters=(Tables(), *engine.drafters), arms=arms, cost=cost)
    requests = [ask(temperature=0.7, seed=seed) for seed in range(6)]
    results = generate_all(together(engine), requests)
    assert [content(r) for r in results] == [content(generate(engine, r)) for r in requests]
    for name in ("tables", "target"):
        assert all(r.stats.arms[name].accepted == r.stats.arms[name].drafted for r in results)
    assert sum(r.stats.arms["tables"].drafted for r in results) > 9


def test_requests_join_and_leave_between_steps(build: Build) -> None:
    """The batch grows, shrinks to one and grows again; nobody's text changes."""
    engine = build(TableLM.random(7, 24), DRAFTS, "random")
    batch = together(engine)
    requests = {key: ask(seed=key, temperature=0.9, prompt_ids=(key,) * (key + 1)) for key in range(6)}
    state, seen = begin(batch), {}
    plan = {0: (0, 1, 2), 3: (3,), 6: (4,), 9: (5,)}
    sizes = set()
    for tick in range(200):
        for key in plan.get(tick, ()):
            state = join(batch, state, key, requests[key])
        if not state.members:
            break
        state, _ = step(batch, state)
        sizes.add(len(state.members))
        for member in state.members:
            seen[member.key] = member.state.output.token_ids
            if not member.running or (tick == 4 and member.key in (0, 2)):
                state = leave(batch, state, member.key)
    assert sizes >= {1, 2, 3}
    for key, request in requests.items():
        whole = generate(engine, request).token_ids
        assert seen[key] == (whole if key not in (0, 2) else whole[: len(seen[key])])


def test_an_old_state_and_its_selectors_are_untouched(build: Build) -> None:
    """A step is a function: the same state stepped twice gives the same, with a toy cache that is a value."""
    batch = together(build(TableLM.random(7, 25), ONE_HOT, "cht"))
    state = begin(batch)
    for key in range(3):
        state = join(batch, state, key, ask(seed=key, temperature=1.3))
    once, _ = step(batch, state)
    again, _ = step(batch, state)
    assert [m.state.tokens for m in once.members] == [m.state.tokens for m in again.members]
    assert all(len(m.state.tokens) == 5 for m in state.members)


def test_chunks_join_to_the_results_while_requests_are_aborted(build: Build) -> None:
    """Text by request, in order; an aborted one keeps a prefix; a waiting one has nothing."""
    engine = build(TableLM.random(7, 26), DRAFTS, "random")
    batch = Batch(together(engine), largest=3)
    requests = [ask(seed=key, temperature=0.7, stop=("ggg",)) for key in range(6)]
    keys = [batch.submit(request) for request in requests]
    texts = dict.fromkeys(keys, "")
    ids: dict[int, tuple[int, ...]] = dict.fromkeys(keys, ())
    for count, (key, chunk) in enumerate(batch):
        texts[key] += chunk.text
        ids[key] = (*ids[key], *chunk.token_ids)
        if count == 4:
            assert batch.running == (0, 1, 2)
            assert batch.waiting == (3, 4, 5)
            batch.abort(1)
            assert batch.abort(5).token_ids == ()
            with pytest.raises(ContractError, match="key 5 is neither waiting nor running"):
                batch.abort(5)
    for key, request in enumerate(requests):
        whole, result = generate(engine, request), batch.results[key]
        if key in (1, 5):
            assert result.token_ids == whole.token_ids[: len(result.token_ids)]
        else:
            assert content(result) == content(whole)
            assert (texts[key], ids[key]) == (result.text, result.token_ids)
    assert not batch.running
    assert not batch.errors


def test_a_request_without_a_law_leaves_its_neighbours_alone(build: Build) -> None:
    """NaN in one request's row: its output so far and an error that names the position; others end as alone."""
    good = TableLM.random(7, 4)
    poisoned = attrs.evolve(good, row=lambda text: good.row(text) * (np.nan if text[0] == 6 and len(text) > 8 else 1.0))
    engine = build(poisoned, ONE_HOT, "random")
    batch = Batch(together(engine))
    requests = [ask(), ask(prompt_ids=(6, 1, 2)), ask(prompt_ids=(2, 3))]
    keys = [batch.submit(request) for request in requests]
    for _ in batch:
        pass
    assert isinstance(batch.errors[keys[1]], NumericalError)
    assert "position 9" in str(batch.errors[keys[1]])
    assert batch.results[keys[1]].token_ids == generate(build(good, []), requests[1]).token_ids[:6]
    for key in (0, 2):
        assert content(batch.results[keys[key]]) == content(generate(engine, requests[key]))
    with pytest.raises(NumericalError, match="position 9"):
        generate_all(together(engine), requests)


def test_a_draft_equal_to_the_target_is_always_accepted(build: Build) -> None:
    """Full acceptance at T 0, 0.7 and 1.3 side by side while neighbours come and go."""
    engine = build(TableLM.random(7, 27), ["other", "target"], "random")
    requests = [ask(temperature=t, seed=i, max_new_tokens=10 + 9 * i) for i, t in enumerate((0.0, 0.7, 1.3, 0.7))]
    for result in generate_all(together(engine), requests, largest=2):
        assert result.stats.arms["target"].accepted == result.stats.arms["target"].drafted > 0


def test_no_draft_wins_at_the_batch_size_where_drafts_stop_paying(build: Build) -> None:
    """Tokens that cost nothing extra alone and a whole step each in a full batch: drafted alone, not there."""
    engine = build(TableLM.random(7, 28), ONE_HOT, selectors.from_spec("cht"))
    free = {(1, w): 1.0 for w in (1, 17)} | {(8, w): 1.0 + 8 * (w - 1) for w in (1, 17)}
    batch = attrs.evolve(together(engine), cost=BatchCost(free, {}))
    requests = [ask(seed=seed, max_new_tokens=60, temperature=0.7) for seed in range(8)]
    crowded = sum(r.stats.drafted for r in generate_all(batch, requests, largest=8))
    alone = sum(r.stats.drafted for r in generate_all(batch, requests, largest=1))
    planned = sum(r.stats.drafted for r in generate_all(attrs.evolve(batch, plan_for=8), requests, largest=1))
    assert alone > 400
    assert crowded < 20
    assert planned < 20


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("shape", ["convex", "linear", "concave"])
def test_prices_cover_the_step_whatever_is_mixed(shape: str, padded: bool) -> None:
    """Shares of a plain step and prices of drafts sum to at least the cost of the step that results."""
    power = {"convex": 1.7, "linear": 1.0, "concave": 0.6}[shape]
    widths = range(1, 18)
    cost = BatchCost({(b, w): 10 + b * (w - 1) ** power for b in (1, 3, 6) for w in widths}, {"model": 2.0}, padded)
    arms = Arms.of({"lookup": (1, 4, 16), "model": (2, 8)})
    made = np.array([2.0 * g * (d == 2) for d, g in zip(arms.draft, arms.length, strict=True)])
    rng = np.random.default_rng(5)
    for _ in range(200):
        batch = int(rng.integers(1, 7))
        chosen = rng.integers(0, len(arms), batch)
        lengths = arms.length[chosen]
        width = 1 + (lengths.max() if padded else lengths.mean())
        paid = cost.of(arms, batch)[chosen].sum()
        assert paid >= (cost.step(batch, width) + made[chosen].sum()) * (1 - 1e-9)
        assert cost.of(arms, batch)[0] * batch == pytest.approx(cost.step(batch, 1))


def test_what_cannot_be_is_refused_by_name(build: Build) -> None:
    """Keys twice or unknown, finished members, batches larger than measured, grids with holes."""
    batch = together(build(TableLM.random(7, 29, max_length=40), []), largest=2)
    state = join(batch, begin(batch), 3, ask(max_new_tokens=1))
    with pytest.raises(ContractError, match="key 3 is in the batch"):
        join(batch, state, 3, ask())
    with pytest.raises(ContractError, match="key 4 is not in the batch; allowed: \\[3\\]"):
        leave(batch, state, 4)
    with pytest.raises(ContractError, match="context"):
        join(batch, state, 4, ask(max_new_tokens=36))
    with pytest.raises(ContractError, match="the batch has 2 requests"):
        join(batch, join(batch, state, 4, ask()), 5, ask())
    done, _ = step(batch, state)
    with pytest.raises(ContractError, match="members \\[3\\] are finished"):
        step(batch, done)
    with pytest.raises(ContractError, match="at least one"):
        step(batch, begin(batch))
    with pytest.raises(ContractError, match="largest is 3; allowed: 1 to 2"):
        Batch(batch, largest=3)
    with pytest.raises(ContractError, match="grid"):
        BatchCost({(1, 1): 1.0, (2, 4): 1.0}, {})
    with pytest.raises(ContractError, match="measured: 1 to 2"):
        batch.cost.step(3, 1)
    with pytest.raises(ContractError, match="row 0: 2 logits of 1 tokens"):
        batch.lm.forward(batch.lm.join(batch.lm.start()), [[1]], [2])
    with pytest.raises(ContractError, match="cannot drop"):
        batch.lm.rollback(batch.lm.join(batch.lm.start()), [1])
