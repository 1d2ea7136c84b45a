"""A speculator as the loop of ``model.generate``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec.errors import CapabilityError, ContractError  # noqa: E402
from flashspec.hf import Speculator  # noqa: E402

Make = Callable[..., Any]
PROMPT = torch.tensor([[1, 2, 3, 1, 2, 9]])


def build(tiny: Make) -> Any:
    """A speculator over a tiny model, all kinds of drafts, random choice."""
    return Speculator.build(tiny(), ["ngram", "suffix", "early-exit:3"], selector="random", draft_max=4)


class Own(transformers.LogitsProcessor):  # type: ignore[misc, name-defined]  # transformers is untyped here
    """A processor of somebody's own: it reads the last ids, moves all scores and forbids a third of them."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        ids = torch.arange(scores.shape[-1])
        moved = scores * 0.5 + torch.sin(ids * (1.0 + input_ids[:, -1:]) + input_ids[:, -2:-1])
        return moved.masked_fill((ids + input_ids.sum(-1, keepdim=True)) % 3 == 0, -torch.inf)


class Grammar(Own):
    """One that knows no way on behind a token that it forbids."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        new = input_ids[0, 6:].tolist()
        if any(after == before for before, after in itertools.pairwise([input_ids[0, 5].item(), *new])):
            raise RuntimeError(f"no state behind {new}")
        scores = scores.clone()
        scores[:, input_ids[:, -1]] = -torch.inf
        return scores


class Counting(Own):
    """One that counts its calls."""

    calls = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.calls += 1
        return scores * self.calls


class Narrow(Own):
    """One that loses a token."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores[:, 1:]


class Streamer:
    """What transformers asks of a streamer."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended = False

    def put(self, value: Any) -> None:
        self.seen.extend(value.flatten().tolist())

    def end(self) -> None:
        self.ended = True


def own(*given: Any) -> Any:
    """A list of processors."""
    return transformers.LogitsProcessorList(given)


FULL = transformers.DynamicCache()
FULL.update(torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 8), 0)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 30},
        {"max_new_tokens": 1},
        {"max_length": 20},
        {"max_new_tokens": 30, "eos_token_id": [3, 17, 40, 41, 42]},
        {"max_new_tokens": 30, "min_new_tokens": 12, "eos_token_id": list(range(0, 90, 3))},
        {"max_new_tokens": 30, "min_length": 14, "eos_token_id": list(range(0, 90, 3))},
        {"max_new_tokens": 30, "repetition_penalty": 1.3},
        {"max_new_tokens": 30, "repetition_penalty": 0.8, "no_repeat_ngram_size": 3},
        {"max_new_tokens": 30, "bad_words_ids": [[5], [1, 2], [9, 30, 31]], "repetition_penalty": 1.1},
        {"max_new_tokens": 30, "sequence_bias": {(7,): 4.0, (1, 2): -3.0}, "repetition_penalty": 1.5},
        {"max_new_tokens": 30, "suppress_tokens": list(range(40)), "begin_suppress_tokens": [50, 60, 70]},
        {"max_new_tokens": 12, "forced_eos_token_id": 3, "min_new_tokens": 12, "eos_token_id": [3]},
        {"max_new_tokens": 12, "forced_eos_token_id": [3, 4]},
        {"max_new_tokens": 40, "exponential_decay_length_penalty": (2, 1.1), "eos_token_id": [5, 94]},
        {"max_new_tokens": 30, "prefix_allowed_tokens_fn": lambda row, ids: [row, 7, int(ids[-1] * 5 + 1) % 90, 11]},
        {"max_new_tokens": 30, "remove_invalid_values": True, "renormalize_logits": True},
        {"max_new_tokens": 30, "encoder_repetition_penalty": 1.4, "encoder_no_repeat_ngram_size": 2},
        {"max_new_tokens": 20, "watermarking_config": transformers.WatermarkingConfig(bias=3.0, context_width=2)},
        {"max_new_tokens": 30, "logits_processor": own(Own())},
        {"max_new_tokens": 30, "logits_processor": own(Grammar())},
        {"max_new_tokens": 30, "logits_processor": own(Own(), Grammar()), "repetition_penalty": 1.3, "min_length": 20},
        {"max_new_tokens": 30, "logits_processor": own(Own()), "suppress_tokens": list(range(40))},
        {"max_new_tokens": 30, "logits_processor": own(transformers.TopKLogitsWarper(3)), "bad_words_ids": [[5]]},
        {"max_new_tokens": 30, "logits_processor": own(transformers.MinLengthLogitsProcessor(20, [9, 30, 40]))},
        {"max_new_tokens": 30, "cache_implementation": "static"},
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
)
def test_greedy_output_is_that_of_generate(tiny: Make, options: dict[str, Any]) -> None:
    """Lengths and EOS settings prepared by transformers are honoured token for token."""
    speculator = build(tiny)
    model = speculator.target.model
    mask = torch.ones_like(PROMPT)
    expected = model.generate(PROMPT, attention_mask=mask, do_sample=False, **options)
    found = model.generate(PROMPT, attention_mask=mask, do_sample=False, custom_generate=speculator, **options)
    assert torch.equal(found, expected)


def test_a_repetition_penalty_does_not_count_the_padding(tiny: Make) -> None:
    """As transformers, which leaves out what the mask leaves out; nor what its own processor is told to ignore."""
    speculator = build(tiny)
    model = speculator.target.model
    padded = torch.cat([torch.full((1, 3), 95), PROMPT], dim=1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    asked = {"attention_mask": mask, "do_sample": False, "max_new_tokens": 20}
    expected = model.generate(padded, repetition_penalty=2.0, **asked)
    assert torch.equal(model.generate(padded, repetition_penalty=2.0, custom_generate=speculator, **asked), expected)
    partly = transformers.LogitsProcessorList(
        [transformers.RepetitionPenaltyLogitsProcessor(3.0, prompt_ignore_length=7)]
    )
    expected = model.generate(padded, logits_processor=partly, **asked)
    assert torch.equal(model.generate(padded, logits_processor=partly, custom_generate=speculator, **asked), expected)


def test_left_padding_is_skipped(tiny: Make) -> None:
    """Padding on the left changes nothing but its own place in the output."""
    speculator = build(tiny)
    model = speculator.target.model
    padded = torch.cat([torch.full((1, 3), 95), PROMPT], dim=1)
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1]])
    expected = model.generate(padded, attention_mask=mask, do_sample=False, max_new_tokens=12)
    found = model.generate(padded, attention_mask=mask, do_sample=False, max_new_tokens=12, custom_generate=speculator)
    assert torch.equal(found, expected)


def test_sampling_is_fixed_by_torch_seed_and_a_streamer_sees_every_token(tiny: Make) -> None:
    """``do_sample`` works with the filters transformers prepared; the held streamer gets all tokens."""
    speculator = build(tiny)
    outputs = []
    for _ in range(2):
        torch.manual_seed(3)
        streamer = Streamer()
        out = speculator.target.model.generate(
            PROMPT,
            attention_mask=torch.ones_like(PROMPT),
            do_sample=True,
            temperature=0.7,
            top_p=0.9,
            top_k=20,
            max_new_tokens=20,
            custom_generate=speculator.with_streamer(streamer),
        )
        assert streamer.ended
        assert streamer.seen == out[0].tolist()
        outputs.append(out)
    assert torch.equal(*outputs)


def test_a_callers_own_stopping_criterion_ends_generation(tiny: Make) -> None:
    """Criteria that the commit path does not know are asked after every token."""
    speculator = build(tiny)

    class Ten(transformers.StoppingCriteria):  # type: ignore[misc, name-defined]  # transformers is untyped here
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
            return torch.full((1,), input_ids.shape[1] >= 10)

    out = speculator.target.model.generate(
        PROMPT,
        attention_mask=torch.ones_like(PROMPT),
        do_sample=False,
        max_new_tokens=30,
        stopping_criteria=transformers.StoppingCriteriaList([Ten()]),
        custom_generate=speculator,
    )
    assert out.shape[1] == 10


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"guidance_scale": 1.5}, CapabilityError, "guidance_scale"),
        ({"logits_processor": transformers.LogitsProcessorList([Counting()])}, CapabilityError, "Counting answers"),
        ({"logits_processor": transformers.LogitsProcessorList([Narrow()])}, ContractError, r"Narrow returned .*1, 95"),
        ({"prefix_allowed_tokens_fn": lambda b, ids: []}, ContractError, "allows no token after 0 .* row 0"),
        ({"num_beams": 2}, CapabilityError, "num_beams is 2"),
        ({"output_scores": True, "return_dict_in_generate": True}, CapabilityError, "output_scores is set"),
        ({"position_ids": 50 * torch.arange(6)[None]}, CapabilityError, "position_ids of your own"),
        ({"past_key_values": FULL}, CapabilityError, "a filled cache"),
        ({"stop": ["a", ""]}, ContractError, "a stop string is empty"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else None,
)
def test_what_the_loop_cannot_do_is_refused_by_name(
    tiny: Make, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Before any work, with the option's name."""
    speculator = build(tiny)
    with pytest.raises(error, match=words):
        speculator.target.model.generate(
            PROMPT,
            attention_mask=torch.ones_like(PROMPT),
            **{"do_sample": False, "max_new_tokens": 4, "custom_generate": speculator, **options},
        )


def test_another_model_is_refused(tiny: Make) -> None:
    """Drafts were built for one target."""
    other = tiny(seed=3)
    with pytest.raises(ContractError, match="another model"):
        other.model.generate(
            PROMPT,
            attention_mask=torch.ones_like(PROMPT),
            max_new_tokens=4,
            do_sample=False,
            custom_generate=build(tiny),
        )


ROWS = torch.tensor([[95, 95, 1, 2, 3, 1, 2, 9], [95, 4, 4, 5, 4, 4, 5, 4], [30, 31, 32, 33, 30, 31, 32, 33]])
ROWS_MASK = (ROWS != 95).long()


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 24},
        {"max_new_tokens": 24, "eos_token_id": [7, 12, 40, 41, 42]},
        {"max_new_tokens": 24, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
        {"max_new_tokens": 24, "logits_processor": own(Own())},
        {"max_new_tokens": 24, "prefix_allowed_tokens_fn": lambda row, ids: [row, row + 8, int(ids[-1]) % 90]},
        {"max_new_tokens": 24, "cache_implementation": "static"},
        {"max_new_tokens": 24, "return_dict_in_generate": True},
    ],
    ids="-".join,
)
def test_a_greedy_batch_is_that_of_generate(tiny: Make, options: dict[str, Any]) -> None:
    """Rows of different lengths, with padding on both sides of the text, as transformers returns them."""
    speculator = build(tiny)
    model = speculator.target.model
    asked = {"attention_mask": ROWS_MASK, "do_sample": False, **options}
    expected = model.generate(ROWS, **asked)
    found = model.generate(ROWS, custom_generate=speculator, **asked)
    if "return_dict_in_generate" in options:
        expected, found = expected.sequences, found.sequences
    assert torch.equal(found, expected)


def test_rows_of_a_sampled_batch_have_seeds_of_their_own(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """``num_return_sequences`` gives different texts, and ``torch.manual_seed`` fixes all of them."""
    speculator = build(tiny).for_batches(4)
    monkeypatch.setattr("flashspec.hf.batch.batch_engine", None)  # the engine that is held does it all
    asked = {"do_sample": True, "temperature": 1.3, "num_return_sequences": 3, "max_new_tokens": 12, "top_k": 0}
    found = []
    for _ in range(2):
        torch.manual_seed(11)
        found.append(speculator.target.model.generate(PROMPT, custom_generate=speculator, **asked))
    assert torch.equal(*found)
    assert len({tuple(row) for row in found[0].tolist()}) == 3


def test_processors_of_ones_own_keep_the_text_of_plain_decoding_at_temperature(tiny: Make) -> None:
    """By path: the same seed has the same text with drafts and without, behind filters that are run as they are."""
    target = tiny()
    plain, drafted = (Speculator.build(target, d, selector="random", draft_max=4) for d in ([], ["ngram", "suffix"]))
    for options in (
        {"logits_processor": own(Own()), "temperature": 0.7},
        {"typical_p": 0.8, "temperature": 1.3, "top_k": 0},
        {"eta_cutoff": 0.01, "epsilon_cutoff": 0.001, "top_p": 0.9, "temperature": 0.7},
        {"logits_processor": own(transformers.TopKLogitsWarper(4), transformers.TemperatureLogitsWarper(0.5))},
    ):
        texts = []
        for speculator in (plain, drafted):
            torch.manual_seed(5)
            texts.append(
                target.model.generate(PROMPT, custom_generate=speculator, do_sample=True, max_new_tokens=40, **options)
            )
        assert torch.equal(*texts)


def test_stop_texts_end_each_row(tiny: Make) -> None:
    """Given to ``generate`` as ``stop``; a row ends with the token that completes one, as after ``stop_strings``."""
    speculator = build(tiny)
    model, tokenizer = speculator.target.model, speculator.target.tokenizer
    free = model.generate(ROWS, attention_mask=ROWS_MASK, do_sample=False, max_new_tokens=20)
    stop = [tokenizer.decode(row[12:14]) for row in free[:2]]
    asked = {"attention_mask": ROWS_MASK, "do_sample": False, "max_new_tokens": 20}
    expected = model.generate(ROWS, stop_strings=stop, tokenizer=tokenizer, **asked)
    found = model.generate(ROWS, custom_generate=speculator, stop=stop, **asked)
    assert torch.equal(found, expected)
    assert found.shape[1] < free.shape[1] or bool((found != free).any())


def test_a_static_cache_of_ones_own_is_filled(tiny: Make) -> None:
    """One prompt, full attention: the tokens of generate, and the cache holds all but the newest of them."""
    speculator = build(tiny)
    model = speculator.target.model
    expected = model.generate(PROMPT, do_sample=False, max_new_tokens=20)
    past = transformers.StaticCache(config=model.config, max_cache_len=26)
    found = model.generate(PROMPT, do_sample=False, max_new_tokens=20, past_key_values=past, custom_generate=speculator)
    assert torch.equal(found, expected)
    assert int(past.get_seq_length()) == found.shape[1] - 1


def test_static_caches_that_cannot_serve_are_refused(tiny: Make) -> None:
    """With windows, whose tokens are overwritten; and one of the caller's own for rows of different lengths."""
    windowed = tiny("mistral")
    speculator = Speculator.build(windowed, ["ngram"], draft_max=3)
    with pytest.raises(CapabilityError, match="StaticSlidingWindowLayer"):
        windowed.model.generate(
            PROMPT, do_sample=False, max_new_tokens=9, cache_implementation="static", custom_generate=speculator
        )
    speculator = build(tiny)
    model = speculator.target.model
    past = transformers.StaticCache(config=model.config, max_cache_len=40)
    for layer in past.layers:
        del layer.cumulative_length
    with pytest.raises(CapabilityError, match="keep no length that can shrink"):
        model.generate(PROMPT, max_new_tokens=9, past_key_values=past, custom_generate=speculator)
    past = transformers.StaticCache(config=model.config, max_cache_len=40)
    with pytest.raises(CapabilityError, match="batch of 3"):
        model.generate(
            ROWS, attention_mask=ROWS_MASK, max_new_tokens=9, past_key_values=past, custom_generate=speculator
        )


def test_what_a_batch_cannot_do_is_refused(tiny: Make) -> None:
    """A streamer, a mask with holes, processors that hold the prompts of all rows."""
    speculator = build(tiny)
    model = speculator.target.model
    for held, mask, options, words in (
        (speculator.with_streamer(Streamer()), ROWS_MASK, {}, "a streamer and a batch of 3"),
        (speculator, ROWS_MASK.flip(1), {}, "row 0 has holes"),
        (speculator, ROWS_MASK, {"encoder_repetition_penalty": 1.2}, "encoder_repetition_penalty"),
    ):
        with pytest.raises(CapabilityError, match=words):
            model.generate(
                ROWS, attention_mask=mask, max_new_tokens=4, do_sample=False, custom_generate=held, **options
            )
