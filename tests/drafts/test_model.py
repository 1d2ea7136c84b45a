"""The model drafter: what it returns as q is what it sampled from, and its cache never has a hole."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as statistics

from flashspec import registry
from flashspec.contract import Sampling, Stream
from flashspec.decoding.toy import TableLM
from flashspec.drafts import ModelDrafter

BACKEND = registry.get_backend("numpy")


def make(**fields: int) -> ModelDrafter:
    """A drafter over a written-down model."""
    return ModelDrafter("small", TableLM.random(5, 3, order=3, **fields), BACKEND, lengths=(1, 2, 3))


@pytest.mark.parametrize(("temperature", "top_p", "top_k"), [(0.7, 0.8, 0), (1.3, 1.0, 3), (1.0, 1.0, 0)])
def test_proposals_follow_the_law_that_they_declare(temperature: float, top_p: float, top_k: int) -> None:
    """Histogram of 2,000 first proposals against softmax of the declared logits; false-alarm rate 1e-4."""
    drafter, sampling = make(), Sampling.of(1, temperature=temperature, top_p=top_p, top_k=top_k)
    counts = np.zeros(5)
    for seed in range(2000):
        draft, _ = drafter.propose(drafter.start([1, 2, 4]), 1, sampling, Stream.of([seed], [3]))
        counts[draft.tokens[0]] += 1
    logits = drafter.lm.forward(drafter.lm.start(), [1, 2, 4], 1)[0][0, 0] / temperature
    p = np.exp(logits - logits.max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    if top_k:
        order = order[:top_k]
    kept = order[(np.cumsum(p[order]) - p[order]) / p[order].sum() < top_p]
    assert counts[np.setdiff1d(np.arange(5), kept)].sum() == 0
    law = p[kept] / p[kept].sum()
    assert len(kept) == 1 or float(statistics.chisquare(counts[kept], 2000 * law).pvalue) > 1e-4


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
@pytest.mark.parametrize("idle", [0, 1, 3])
def test_after_any_verdict_and_any_pause_the_next_proposal_is_that_of_a_fresh_cache(accepted: int, idle: int) -> None:
    """Partial acceptance, full acceptance, idling while others play: never a stale or missing token."""
    drafter, sampling = make(), Sampling.of(1, temperature=0.7)
    text = [1, 2, 4]
    draft, state = drafter.propose(drafter.start(text), 3, sampling, Stream.of([1], [3]))
    committed = [*draft.tokens[:accepted], (draft.tokens[accepted] + 1) % 5 if accepted < 3 else 0]
    for tokens in [committed, *([2, 0], [3], [1, 1, 1])[:idle]]:
        text += tokens
        state = drafter.extend(state, tokens)
    again, _ = drafter.propose(state, 3, sampling, Stream.of([1], [len(text)]))
    fresh, _ = drafter.propose(drafter.start(text), 3, sampling, Stream.of([1], [len(text)]))
    assert again.tokens == fresh.tokens


def test_a_draft_model_with_a_short_context_drafts_less_then_nothing() -> None:
    """Beyond its own context it proposes no token and keeps what it has."""
    drafter, sampling = make(max_length=6), Sampling.of(1, temperature=0.7)
    draft, _ = drafter.propose(drafter.start([1, 2, 4, 0, 1]), 3, sampling, Stream.of([1], [5]))
    assert len(draft.tokens) == 2
    draft, state = drafter.propose(drafter.start([1, 2, 4, 0, 1, 2, 3]), 3, sampling, Stream.of([1], [7]))
    assert draft.tokens == ()
    assert drafter.extend(state, [1]).pending == (1, 2, 4, 0, 1, 2, 3, 1)


def test_proposing_twice_without_telling_what_was_committed_is_an_error() -> None:
    """A state that lost track is not used."""
    drafter, sampling = make(), Sampling.of(1)
    _, state = drafter.propose(drafter.start([1]), 2, sampling, Stream.of([1], [1]))
    with pytest.raises(RuntimeError, match="extend"):
        drafter.propose(state, 2, sampling, Stream.of([1], [1]))
