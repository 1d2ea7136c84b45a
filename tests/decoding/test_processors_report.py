"""What is said about each token: log-probabilities aligned with it, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import numpy as np
import pytest

from flashspec import registry
from flashspec.decoding import Engine, Request, generate
from flashspec.decoding.processing import Changes
from flashspec.decoding.rows import HostRows
from flashspec.decoding.toy import TableLM

Build = Callable[..., Engine]
POOL = ("ngram", "suffix", "other", "target")
SETTINGS: dict[str, Any] = {
    "prompt_ids": (1, 2, 3, 1, 2),
    "max_new_tokens": 18,
    "repetition_penalty": 1.4,
    "frequency_penalty": 0.3,
    "bad_words": ((4,), (1, 2)),
    "top_k": 4,
    "top_p": 0.95,
}


def made(build: Build, drafts: Sequence[str], method: str = "path", seed: int = 3) -> Engine:
    """Random arms over a toy target."""
    return build(TableLM.random(7, seed, order=1, scale=1.5), drafts, "random", method=method)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.3])
@pytest.mark.parametrize("of", ["raw", "processed"])
def test_logprobs_are_those_of_plain_decoding(
    build: Build, of: Literal["raw", "processed"], temperature: float
) -> None:
    """One a token, with its likeliest rivals, after accepted drafts as without any."""
    accepted = 0
    for seed in range(3):
        asked = Request(**SETTINGS, temperature=temperature, seed=seed, logprobs=3, logprobs_of=of)
        plain, drafted = generate(made(build, ()), asked), generate(made(build, POOL), asked)
        assert drafted.token_ids == plain.token_ids
        assert len(drafted.logprobs) == len(plain.logprobs) == 18
        for one, other in zip(drafted.logprobs, plain.logprobs, strict=True):
            assert type(one.logprob) is float
            assert one.logprob == pytest.approx(other.logprob, abs=1e-12)
            assert [t for t, _ in one.top] == [t for t, _ in other.top]
        accepted += drafted.stats.accepted
    assert accepted > 0


def test_raw_logprobs_are_the_softmax_of_the_targets_own_logits(build: Build) -> None:
    """Whatever the settings; the likeliest ids come in order."""
    engine = made(build, POOL)
    asked = Request(**SETTINGS, temperature=0.7, seed=5, logprobs=2)
    result = generate(engine, asked)
    text = asked.prompt_ids
    for token, found in zip(result.token_ids, result.logprobs, strict=True):
        logits = engine.lm.row(text)  # type: ignore[attr-defined]  # a TableLM
        logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        order = np.argsort(-logs)[:2]
        assert found.logprob == pytest.approx(logs[token], abs=1e-9)
        assert [t for t, _ in found.top] == order.tolist()
        assert [x for _, x in found.top] == pytest.approx(logs[order], abs=1e-9)
        text = (*text, token)


def test_processed_logprobs_are_of_the_law_that_is_sampled_from(build: Build) -> None:
    """All of its tokens together have probability 1, the emitted one is among them, forbidden ones are not."""
    result = generate(
        made(build, POOL), Request(**SETTINGS, temperature=1.3, seed=5, logprobs=7, logprobs_of="processed")
    )
    for token, found in zip(result.token_ids, result.logprobs, strict=True):
        assert sum(np.exp(x) for _, x in found.top) == pytest.approx(1.0, abs=1e-9)
        assert dict(found.top)[token] == pytest.approx(found.logprob)
        assert len(found.top) <= 4
        assert 4 not in dict(found.top)
        assert [x for _, x in found.top] == sorted((x for _, x in found.top), reverse=True)


def test_a_greedy_processed_law_is_a_point_mass_and_none_is_reported_unasked(build: Build) -> None:
    """0.0 for the token alone; with ``logprobs=0`` no rivals; without it nothing at all."""
    asked = Request(**SETTINGS, logprobs=2, logprobs_of="processed")
    result = generate(made(build, POOL), asked)
    assert all((f.logprob, f.top) == (0.0, ((t, 0.0),)) for t, f in zip(result.token_ids, result.logprobs, strict=True))
    zero = generate(made(build, POOL), attrs.evolve(asked, logprobs=0, logprobs_of="raw"))
    assert all(f.top == () and f.logprob < 0 for f in zero.logprobs)
    assert generate(made(build, POOL), attrs.evolve(asked, logprobs=None)).logprobs == ()


def test_origins_count_what_was_accepted_and_are_cut_with_the_text(build: Build) -> None:
    """Each token has a name: of the draft that proposed it, or target; a cut block says nothing more."""
    asked = Request(prompt_ids=(1, 2, 3, 1, 2), max_new_tokens=30, temperature=0.7, seed=2, eos_ids={5}, logprobs=1)
    for engine in (made(build, POOL[:3]), made(build, POOL[:3], "token")):
        result = generate(engine, asked)
        assert len(result.origins) == len(result.logprobs) == len(result.token_ids)
        counted = {name: result.origins.count(name) for name in engine.arms.drafts[1:]}
        assert counted == {name: result.stats.arms[name].accepted for name in counted}
        assert sum(counted.values()) + result.origins.count("target") == len(result.token_ids)
    assert set(generate(made(build, ()), asked).origins) == {"target"}


def test_a_batch_says_the_same_as_each_request_alone(build: Build) -> None:
    """Settings, log-probabilities and origins of unlike requests, ragged drafts, one verification."""
    from flashspec.decoding.batch_loop import generate_all
    from tests.decoding.test_batch import together

    engine = made(build, POOL)
    requests = [
        Request(**SETTINGS, temperature=0.7, seed=1, logprobs=2),
        Request(prompt_ids=(3,), max_new_tokens=9, temperature=1.3, seed=2, presence_penalty=1.0),
        Request(prompt_ids=(2, 2), max_new_tokens=14, seed=3, logprobs=3, logprobs_of="processed", min_new_tokens=3,
                eos_ids={0, 1}, logit_bias={2: 1.5}),
        Request(**SETTINGS, temperature=1.3, seed=4, no_repeat_ngram=3, logprobs=1, logprobs_of="processed"),
    ]  # fmt: skip
    alone = [generate(engine, r) for r in requests]
    batched = generate_all(together(engine), requests)
    for one, other in zip(alone, batched, strict=True):
        assert (one.token_ids, one.text, one.origins) == (other.token_ids, other.text, other.origins)
        assert [x.top for x in one.logprobs] == [x.top for x in other.logprobs]


def test_tensors_are_changed_as_arrays_are() -> None:
    """Torch rows against host rows: the same changes and the same order of the largest, ties by id."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="the hf extra is not installed")
    from flashspec.hf.rows import TorchRows

    made_ = np.random.default_rng(4)
    logits = np.round(made_.normal(size=(5, 1030)), 1).astype(np.float32)
    at = np.array([0, 0, 3, 4])
    ids = np.array([1, 1029, 5, 6])
    stage = Changes(at, ids, np.array([2.0, 0.5, 1.0, 3.0]), np.array([0.0, -1.0, 0.25, 0.125]))
    host, rows = HostRows(registry.get_backend("numpy")), TorchRows("cpu")
    given = torch.from_numpy(logits.copy())[None]
    wanted = host.edit(logits[None], [stage, stage], keep=True)
    kept = rows.edit(given, [stage, stage], keep=True)
    assert np.array_equal(kept.numpy(), wanted)
    assert np.array_equal(given.numpy()[0], logits)
    assert np.array_equal(rows.edit(given, [stage, stage], keep=False).numpy(), wanted)
    assert np.array_equal(given.numpy(), wanted)
    narrow = torch.from_numpy(logits)[None].to(torch.bfloat16)
    assert rows.edit(narrow, [stage], keep=False).dtype is torch.float32
    mask = made_.integers(-(2**31), 2**31, size=(5, 33)).astype(np.int32)
    tokens = np.array([0, 1, 2, 3, 1029])
    for count in (0, 1, 4, 40, 1030):
        for allowed in (None, mask):
            left = host.top(logits, tokens, count, allowed)
            right = rows.top(
                torch.from_numpy(logits), tokens, count, None if allowed is None else torch.from_numpy(allowed)
            )
            for a, b in zip(left, right, strict=True):
                assert np.array_equal(a, b)
