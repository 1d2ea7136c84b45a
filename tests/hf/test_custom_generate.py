"""A speculator as the loop of ``model.generate``."""

from __future__ import annotations

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
    """A processor of somebody's own."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores


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

    class Streamer:
        def __init__(self) -> None:
            self.seen: list[int] = []
            self.ended = False

        def put(self, value: Any) -> None:
            self.seen.extend(value.flatten().tolist())

        def end(self) -> None:
            self.ended = True

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
        ({"exponential_decay_length_penalty": (2, 1.1)}, CapabilityError, "exponential_decay_length_penalty"),
        ({"prefix_allowed_tokens_fn": lambda b, ids: [1]}, CapabilityError, "prefix_allowed_tokens_fn"),
        ({"remove_invalid_values": True, "renormalize_logits": True}, CapabilityError, "InfNan.*renormalize_logits"),
        ({"do_sample": True, "typical_p": 0.9}, CapabilityError, "TypicalLogitsWarper"),
        ({"do_sample": True, "epsilon_cutoff": 1e-3}, CapabilityError, "epsilon_cutoff"),
        ({"logits_processor": transformers.LogitsProcessorList([Own()])}, CapabilityError, "Own .your own"),
        ({"forced_eos_token_id": [3, 4]}, CapabilityError, "ForcedEOSTokenLogitsProcessor"),
        ({"num_beams": 2}, CapabilityError, "num_beams is 2"),
        ({"output_scores": True, "return_dict_in_generate": True}, CapabilityError, "output_scores is set"),
        ({"position_ids": 50 * torch.arange(6)[None]}, CapabilityError, "position_ids of your own"),
        ({"cache_implementation": "static"}, CapabilityError, "static"),
        ({"num_return_sequences": 2, "do_sample": True}, CapabilityError, "a batch of 2"),
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
