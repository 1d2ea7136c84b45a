"""Heads in the loop: exactness with every kind in one pool, features from the target's own forwards, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

from scipy import stats  # noqa: E402

from flashspec import registry, selectors  # noqa: E402
from flashspec.contract import Sampling, Sparse, Stream  # noqa: E402
from flashspec.decoding import Engine, Request, generate  # noqa: E402
from flashspec.decoding.following import taps_of  # noqa: E402
from flashspec.drafts import Composite, Drafter, Follower, History, ModelDrafter, NGram, Suffix  # noqa: E402
from flashspec.hf.early_exit import truncate  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402
from flashspec.selectors.types import Arms  # noqa: E402
from tests.heads import tiny  # noqa: E402


def pool(model: Any, backend: Any, vocab: int) -> tuple[Drafter, ...]:
    """Every kind of draft there is."""
    ids = torch.arange(0, vocab, 2)
    short = HFCausalLM.of(truncate(model, 3), backend)
    named = {
        "eagle": tiny.draft("eagle", model, backend),
        "fused": tiny.draft("eagle", model, backend, ids, taps=(2, 3, 5)),
        "medusa": tiny.draft("medusa", model, backend, ids),
        "exit": tiny.draft("exit", model, backend),
        "model": tiny.draft("model", model, backend, ids),
    }
    heads = [attrs.evolve(made, name=name) for name, made in named.items()]  # type: ignore[misc]  # drafters are attrs
    composite = Composite.of("composite", 2, tiny.draft("eagle", model, backend, seed=5))
    early = ModelDrafter("early-exit", short, backend, lengths=(1, 3))
    history = History().remember([1, 2, 3, 0, 1, 2, 3, 2])
    return (*heads, composite, early, NGram(), Suffix(), history)


def engine(model: Any, drafters: tuple[Drafter, ...], backend: Any, selector: str = "random", **more: Any) -> Engine:
    """Random arms at every step unless told otherwise."""
    lm = attrs.evolve(HFCausalLM.of(model, backend), taps=taps_of(drafters))
    arms = Arms.of({d.name: d.lengths for d in drafters}, {d.name: 0 if d.free else 2 for d in drafters})
    ticks = itertools.count()
    return Engine(
        lm=lm, drafters=drafters, backend=backend, selector=selectors.from_spec(selector), arms=arms,
        cost=1.0 + 0.01 * arms.length, decode=lambda ids: "".join(chr(97 + i % 26) for i in ids),
        clock=lambda: next(ticks) / 1000, **more,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), [("torch", torch.float32), ("numpy", torch.float64)], ids=str)
def test_greedy_text_is_that_of_plain_decoding_with_every_kind_in_the_pool(name: str, dtype: Any) -> None:
    """Arms switch at random at every step; every kind plays and drafts."""
    backend, model = registry.get_backend(name), tiny.target(vocab=30).to(dtype)
    made = engine(model, pool(model, backend, 30), backend)
    plain = engine(model, (), backend)
    played: set[str] = set()
    for seed, prompt in enumerate([(1, 2, 3, 1, 2), (7,)]):
        request = Request(prompt, 60, seed=seed)
        found = generate(made, request)
        assert found.token_ids == generate(plain, request).token_ids
        assert not found.stats.lost
        played |= {arm for arm, s in found.stats.arms.items() if s.drafted}
    assert played == {d.name for d in made.drafters}


def exact_law(model: Any, prompt: tuple[int, ...], length: int, temperature: float) -> np.ndarray:
    """Probabilities of all continuations of ``length`` tokens."""
    vocab = model.config.vocab_size
    texts = torch.tensor([(*prompt, *rest) for rest in itertools.product(range(vocab), repeat=length)])
    with torch.no_grad():
        logs = (model(texts).logits / temperature).log_softmax(-1)
    size = len(prompt)
    steps = [logs[torch.arange(len(texts)), size - 1 + i, texts[:, size + i]] for i in range(length)]
    law: np.ndarray = np.exp(torch.stack(steps).sum(0).numpy())
    return law


@pytest.mark.parametrize(
    ("temperature", "method", "seeds"),
    [
        (0.7, "token", 60),
        pytest.param(0.7, "token", 600, marks=pytest.mark.nightly),
        pytest.param(1.3, "block", 600, marks=pytest.mark.nightly),
    ],
)
def test_sampled_text_follows_the_targets_law_with_every_kind_in_the_pool(
    temperature: float, method: str, seeds: int
) -> None:
    """Three tokens, chi-square against the enumerated law; false-alarm rate 1e-4.

    Heads draft from the second step on, so the first token is plain and the others are judged.
    """
    backend, model = registry.get_backend("torch"), tiny.target(vocab=5)
    made = engine(model, pool(model, backend, 5), backend, method=method)
    law = exact_law(model, (1, 2, 1), 3, temperature)
    counts, drafted = np.zeros(125), 0
    for seed in range(seeds):
        result = generate(made, Request((1, 2, 1), 3, temperature=temperature, seed=seed))
        a, b, c = result.token_ids
        counts[25 * a + 5 * b + c] += 1
        drafted += result.stats.drafted
    assert drafted > seeds / 2
    right = seeds * law
    large = right >= 5
    seen = np.append(counts[large], counts[~large].sum())
    expected = np.append(right[large], right[~large].sum())
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4


def test_the_loop_feeds_a_head_as_a_target_run_for_it_does() -> None:
    """Features through the channel and features computed anew give the same drafts at every step."""
    backend, model = registry.get_backend("torch"), tiny.target(vocab=30)
    head: Any = tiny.draft("eagle", model, backend, taps=(2, 6))
    fed: Any = tiny._fed(head, model, backend)
    lm = attrs.evolve(HFCausalLM.of(model, backend), taps=head.taps)
    text, cache, state = [3, 1, 4, 1], lm.start(), head.start([3, 1, 4, 1])
    sampling = Sampling.of(1, temperature=0.7)
    for step in range(6):
        unread = text[lm.length(cache) :]
        wrong = [5, 6][: step % 3]
        _, cache = lm.forward(cache, [*unread[:-1], *wrong], 1) if unread[:-1] or wrong else (None, cache)
        cache = lm.rollback(cache, len(wrong))
        state = head.follow(state, cache)
        stream = Stream.of([step], [len(text)])
        one, state = head.propose(state, 3, sampling, stream)
        two, _ = fed.propose(fed.start(text), 3, sampling, stream)
        assert one.tokens == two.tokens
        assert len(one.tokens) == 3
        new = [one.tokens[0], (7 * step) % 30]
        text, state = [*text, *new], head.extend(state, new)


def test_a_head_that_nobody_feeds_proposes_nothing() -> None:
    """No feature, no draft; nothing is made up."""
    backend, model = registry.get_backend("torch"), tiny.target()
    for kind in ("eagle", "medusa"):
        head = tiny.draft(kind, model, backend)
        draft, _ = head.propose(head.start([1, 2, 3]), 3, Sampling.of(1), Stream.of([0], [3]))
        assert draft.tokens == ()
        assert isinstance(head, Follower)


@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_only_known_tokens_are_proposed_with_a_reduced_vocabulary(kind: str) -> None:
    """Every listed id is in the map, and each row sums to 1."""
    backend, model, ids = registry.get_backend("torch"), tiny.target(vocab=40), torch.tensor([3, 9, 17, 38])
    fed: Any = tiny._fed(tiny.draft(kind, model, backend, ids), model, backend)
    for seed in range(20):
        sampling = Sampling.of(1, temperature=1.3, top_p=0.9)
        draft, _ = fed.propose(fed.start([1, 2, 5]), 4, sampling, Stream.of([seed], [3]))
        assert set(draft.tokens) <= set(ids.tolist())
        assert isinstance(draft.proposal, Sparse)
        used = draft.proposal.ids >= 0
        assert set(draft.proposal.ids[used].tolist()) <= set(ids.tolist())
        assert torch.allclose(torch.where(used, draft.proposal.logprobs.exp(), 0.0).sum(-1), torch.ones(1).double())


def test_a_composite_copies_where_enough_matches_and_asks_the_other_draft_elsewhere() -> None:
    """The committed text decides."""
    made = Composite.of("both", 3, attrs.evolve(NGram(), name="other"))
    asked = (4, Sampling.of(1), Stream.of([0], [0]))
    assert made.propose(made.start([1, 2, 3, 9, 1, 2, 3]), *asked)[0].tokens == (9, 1, 2, 3)
    silent = Composite.of("both", 3, History())
    assert silent.propose(silent.start([2, 3, 9, 5, 2, 3]), *asked)[0].tokens == (9, 5, 2, 3)
    assert silent.propose(silent.start([2, 3, 9]), *asked)[0].tokens == ()


def test_history_drafts_from_earlier_requests_and_not_beyond_their_end() -> None:
    """A match in an earlier request is followed up to its end; without a past it is a suffix drafter."""
    past = History().remember([4, 5, 6, 7]).remember([9, 9, 8])
    asked = (4, Sampling.of(1), Stream.of([0], [0]))
    assert past.propose(past.start([1, 4, 5]), *asked)[0].tokens == (6, 7)
    assert past.propose(past.start([1, 7]), *asked)[0].tokens == ()
    assert History().propose(History().start([1, 4, 5]), *asked)[0].tokens == ()
    assert len(History(kept=5).remember([1, 2, 3]).remember([4, 5]).past) == 5


@pytest.mark.parametrize("feature", [0, 3, 6])
def test_a_tap_is_the_hidden_state_of_that_number(feature: int) -> None:
    """0 is the embeddings, the last is what the language-model head reads."""
    backend, model = registry.get_backend("torch"), tiny.target()
    lm = attrs.evolve(HFCausalLM.of(model.requires_grad_(False), backend), taps=(feature,))
    logits, cache = lm.forward(lm.start(), [1, 2, 3], 3)
    hidden = cache.hidden[feature]
    if feature == 6:
        assert torch.allclose(model.lm_head(hidden), logits)
    elif feature == 0:
        assert torch.equal(hidden, model.get_input_embeddings()(torch.tensor([[1, 2, 3]])))
    assert hidden.shape == (1, 3, 16)
