"""All four ways of decoding on a tiny random model: same tokens, right counts, honest clocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flashspec.bench.prompts import Prompt
from flashspec.bench.systems import NAMES, Budget, Ours, Stopwatch, Transformers, build
from flashspec.decoding.shared import Shared

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

VOCAB = 101
EOS = 40
"""The third token of the greedy answer below, if nothing ends or masks it."""
PROMPT = Prompt(3, "code", ("abcabcabcab" * 3,))


class Letters:
    """A tokenizer of one id per character, without a chat template."""

    chat_template = None
    eos_token_id = EOS

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Ids of a text."""
        return {"input_ids": [ord(c) % VOCAB for c in text]}

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """Some letter for each id."""
        return "".join(chr(97 + i % 26) for i in ids)


@pytest.fixture(scope="module")
def loaded() -> Any:
    """A llama of two layers in float32, whose greedy answer soon repeats itself."""
    from flashspec.hf import Loaded

    torch.manual_seed(6)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=1, eos_token_id=EOS, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    return Loaded(model, Letters(), "tiny", None, "float32", "cpu")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured costs stay inside the test."""
    monkeypatch.setenv("FLASHSPEC_CACHE", str(tmp_path))


def _build(loaded: Any, budget: Budget, *names: str) -> list[Ours | Transformers]:
    return build(names, loaded, budget, ["ngram", "suffix"], ["ucb1"], False, {"draft_max": 4})


def test_selectors_are_systems_and_a_stream_carries_what_was_learned(loaded: Any) -> None:
    """Each by its name, with a state of its own; the baseline does without a fixed draft that it does not have."""
    names, chosen = ("plain", "speculation"), ["ucb1", "fixed:ngram/2"]
    plain, ucb1, fixed = build(names, loaded, Budget(9, 0.0, "ignore"), ["ngram"], chosen, True, {"draft_max": 4})
    assert [s.name for s in (plain, ucb1, fixed)] == ["plain", *chosen]
    assert isinstance(ucb1, Ours)
    assert isinstance(fixed, Ours)
    assert isinstance(ucb1.shared, Shared)
    first = ucb1.answer(PROMPT, 0)
    learned = ucb1.shared.state
    assert ucb1.answer(PROMPT, 0).token_ids == first.token_ids == fixed.answer(PROMPT, 0).token_ids
    assert ucb1.shared.state is not learned
    assert ucb1.shared is not fixed.shared


@pytest.mark.parametrize("eos", ["ignore", "mask"])
def test_all_systems_emit_the_same_greedy_tokens_of_the_same_number(loaded: Any, eos: str) -> None:
    """In float32, with end tokens ignored or masked: token for token, exactly the budget."""
    answers = [s.answer(PROMPT, 0).token_ids for s in _build(loaded, Budget(37, 0.0, eos), *NAMES)]
    assert {len(a) for a in answers} == {37}
    assert len(set(answers)) == 1
    assert (EOS in answers[0]) == (eos == "ignore")


def test_every_system_stops_at_the_end_token(loaded: Any) -> None:
    """With ``stop`` the answer is the unstopped one up to its first end token, for everybody."""
    free = _build(loaded, Budget(37, 0.0, "ignore"), "plain")[0].answer(PROMPT, 0).token_ids
    answers = {s.answer(PROMPT, 0).token_ids for s in _build(loaded, Budget(37, 0.0, "stop"), *NAMES)}
    assert answers == {free[: free.index(EOS) + 1]}
    assert 1 < free.index(EOS) < 36


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_sampled_answers_follow_the_seed(loaded: Any, temperature: float) -> None:
    """Same seed, same answer; another seed, another answer; always the whole budget."""
    for system in _build(loaded, Budget(29, temperature, "ignore"), *NAMES):
        first, again, other = (system.answer(PROMPT, seed).token_ids for seed in (4, 4, 5))
        assert first == again
        assert first != other
        assert len(first) == len(other) == 29


def test_steps_and_first_tokens_are_counted(loaded: Any) -> None:
    """Plain decoding takes a step per token; drafts take fewer, and offer what they accept."""
    plain, ours, generate, lookup = (s.answer(PROMPT, 0) for s in _build(loaded, Budget(60, 0.0, "ignore"), *NAMES))
    assert (plain.steps, generate.steps) == (60, 60)
    assert (plain.first_tokens, generate.first_tokens) == (1, 1)
    assert plain.drafted == 0
    assert lookup.steps < 60
    assert ours.drafted is not None
    assert ours.accepted is not None
    assert ours.steps + ours.accepted == 60
    assert ours.accepted <= ours.drafted


def test_the_first_step_is_stamped_between_call_and_return(loaded: Any) -> None:
    """On the clock that times the whole call."""
    for system in _build(loaded, Budget(12, 0.0, "ignore"), *NAMES):
        begin = time.perf_counter()
        answer = system.answer(PROMPT, 0)
        assert begin < answer.first_at < time.perf_counter()


def test_the_benchmark_leaves_the_model_as_it_was(loaded: Any) -> None:
    """Its own generation config sits on a view that shares the weights."""
    before = loaded.model.generation_config.to_json_string()
    (system,) = (s for s in _build(loaded, Budget(12, 0.0, "ignore"), "plain", "prompt-lookup") if s.name != "plain")
    system.answer(PROMPT, 0)
    assert isinstance(system, Transformers)
    assert loaded.model.generation_config.to_json_string() == before
    assert system.view.lm_head.weight is loaded.model.lm_head.weight


def test_systems_say_what_they_draft_with(loaded: Any) -> None:
    """Rows name drafts and selector of the system that they belong to."""
    systems = _build(loaded, Budget(12, 0.0, "ignore"), *NAMES)
    assert [(s.name, s.drafts, s.selector) for s in systems] == [
        ("plain", (), None),
        ("speculation", ("ngram", "suffix"), "ucb1"),
        ("transformers", (), None),
        ("prompt-lookup", ("prompt_lookup_num_tokens=10",), None),
    ]


def test_a_stopwatch_takes_the_prompt_for_no_step() -> None:
    """transformers hands the prompt to a streamer before the first tokens."""
    watch = Stopwatch()
    for value in (torch.zeros(1, 9), torch.zeros(3), torch.zeros(2)):
        watch.put(value)
    watch.end()
    assert (watch.steps, watch.first_tokens) == (2, 3)


def test_batches_are_paired_rounds_with_the_tokens_of_batch_1(loaded: Any) -> None:
    """Two rounds of two batches of 2: rows for both systems, the same greedy tokens, counts without a clock."""
    from flashspec.bench import batch
    from flashspec.hf.batch import batch_engine

    own = [s for s in _build(loaded, Budget(30, 0.0, "ignore"), "plain", "speculation") if isinstance(s, Ours)]
    prompts = [Prompt(i, "code", ("abcab" * (i + 2),)) for i in range(9)]
    rounds = batch.measure(
        own, prompts, 2, 2, 1, 0, time.perf_counter, lambda stage: None, lambda s, n: batch_engine(s.speculator, n)
    )
    assert [(r.system, r.number) for r in rounds] == [
        ("plain", 0), ("speculation", 0), ("speculation", 1), ("plain", 1)
    ]  # fmt: skip
    alone = [own[0].answer(p, 0).token_ids for p in prompts[:8]]
    for system in ("plain", "speculation"):
        assert [t for r in rounds if r.system == system for t in r.tokens] == alone
    plain, ours = batch.rows(rounds, own, "plain", {"target": "t"}, 2, prompts=8, greedy=True)
    assert (plain["ratio"], plain["forwards"], plain["mean_width"], plain["mean_emitted_length"]) == (1.0, 120, 1, 1)
    assert (ours["same_tokens"], ours["tokens"], ours["batch"]) == (1.0, 240, 2)
    assert ours["forwards"] < 120
    assert ours["mean_width"] > 1 < ours["mean_emitted_length"]
    assert set(ours["phases"]) == {"draft", "verify", "commit", "learn"}
    assert set(plain) == set(ours)


def test_too_few_prompts_for_a_round_are_refused() -> None:
    """Before anything is loaded for it."""
    from flashspec.bench.batch import groups
    from flashspec.errors import ContractError

    with pytest.raises(ContractError, match="a round has 4 prompts, and there are 1"):
        groups([PROMPT], 4)
