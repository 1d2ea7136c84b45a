"""Logits processors that transformers prepared, as settings and processors of a request, in their order.

What has a counterpart here is translated. From the first one that has none to the last such one, all are called as
they are (``hf.foreign``), filters among them included, so that their order is that of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch
from transformers.generation import logits_process as processors

from flashspec.decoding.processing import (
    Bias,
    Forced,
    MinNewTokens,
    NoRepeatNGram,
    Penalties,
    Processor,
    SuppressedAt,
)
from flashspec.errors import CapabilityError
from flashspec.hf.foreign import Foreign, Prefix, check_pure

FILTERS = {
    processors.TemperatureLogitsWarper: "temperature",
    processors.TopKLogitsWarper: "top_k",
    processors.TopPLogitsWarper: "top_p",
    processors.MinPLogitsWarper: "min_p",
}
"""What becomes a request's own sampling parameter, in the order in which a backend applies them."""

FORCED = (processors.ForcedBOSTokenLogitsProcessor, processors.ForcedEOSTokenLogitsProcessor)
"""They overrule what came before, so none stays behind one that is called as it is."""

STATEFUL: Mapping[type, str] = {
    processors.UnbatchedClassifierFreeGuidanceLogitsProcessor: "guidance_scale",
    processors.SynthIDTextWatermarkLogitsProcessor: "watermarking_config",
}
"""They remember earlier calls: their settings are refused."""

BY_ROW: Mapping[type, str] = {
    processors.EncoderRepetitionPenaltyLogitsProcessor: "encoder_repetition_penalty",
    processors.EncoderNoRepeatNGramLogitsProcessor: "encoder_no_repeat_ngram_size",
}
"""They hold the prompts of all rows: refused in a batch."""


@attrs.frozen(eq=False)
class Translated:
    """What a row's processors come to."""

    processors: tuple[Processor, ...]
    sampling: Mapping[str, float]
    """Temperature and filters by name; those that are not there are off."""


@attrs.frozen(eq=False)
class Row:
    """One prompt of a batch as transformers has it."""

    ids: torch.Tensor
    """``[1, n]``, with padding on the left."""
    left: int = 0
    """How much of it is padding."""
    number: int = 0
    """Its place in the batch."""


def check(given: Sequence[Any], ids: torch.Tensor, vocab: int) -> None:
    """Refuse processors that cannot serve ``ids [B, n]`` under speculation, before any work.

    Raises:
        CapabilityError: they remember calls, or hold other rows than the one that is asked about; named.
    """
    refused: dict[type, str] = {**STATEFUL, **(BY_ROW if len(ids) > 1 else {})}
    wrong = [p for p in given if type(p) in refused]
    if wrong:
        names = ", ".join(f"{type(p).__name__} ({refused[type(p)]})" for p in wrong)
        raise CapabilityError(
            f"logits processors {names} are set; allowed: functions of the ids and scores of one row; switch them off"
        )
    first, last = _span(list(given), Row(ids[:1]))
    check_pure(given[first:last], ids[:1], vocab)


def translate(given: Sequence[Any], row: Row) -> Translated:
    """The prepared processors for one row of the batch, which ``check`` let pass."""
    listed = list(given)
    first, last = _span(listed, row)
    made: list[Processor] = []
    for processor in listed[:first]:
        made += _counterparts(processor, row) or ()
    if last > first:
        made.append(Foreign(tuple(listed[first:last]), row.ids))
    for processor in listed[last:]:
        made += _counterparts(processor, row) or ()
    own = [p for p in listed[last:] if type(p) in FILTERS]
    return Translated(tuple(made), {FILTERS[type(p)]: float(getattr(p, FILTERS[type(p)])) for p in own})


def _span(listed: list[Any], row: Row) -> tuple[int, int]:
    """Places of those that are called as they are: from the first, to before the second; equal if there are none."""
    filters = [i for i, p in enumerate(listed) if type(p) in FILTERS]
    strange = [i for i, p in enumerate(listed) if _counterparts(p, row) is None]
    strange += filters if _disordered(listed) else []
    if not strange:
        return 0, 0
    forced = [i for i, p in enumerate(listed) if type(p) in FORCED and i > min(strange)]
    last = max(strange + forced)
    return min(strange + [i for i in filters if i < last]), last + 1


def _disordered(listed: list[Any]) -> bool:
    """Whether the filters are not those of a request: another order, one twice, settings that it does not have."""
    own = [p for p in listed if type(p) in FILTERS]
    places = [list(FILTERS).index(type(p)) for p in own]
    usual = all(
        getattr(p, "min_tokens_to_keep", 1) == 1 and getattr(p, "filter_value", -math.inf) == -math.inf for p in own
    )
    first = next((i for i, p in enumerate(listed) if type(p) in FILTERS), len(listed))
    return places != sorted(set(places)) or not usual or any(type(p) not in FILTERS for p in listed[first:])


def _counterparts(given: Any, row: Row) -> tuple[Processor, ...] | None:
    """The same as processors of ours, or None."""
    kind, width = type(given), int(row.ids.shape[1])
    if kind in FILTERS:
        return ()
    if kind is processors.MinLengthLogitsProcessor:
        return (MinNewTokens(given.min_length - width, given.eos_token_id.tolist()),)
    if kind is processors.MinNewTokensLengthLogitsProcessor:
        least = given.prompt_length_to_skip + given.min_new_tokens - width
        return (MinNewTokens(least, given.eos_token_id.tolist()),)
    if kind is processors.RepetitionPenaltyLogitsProcessor:
        ignored = given.prompt_ignore_length
        skip = 0 if ignored is None else max(0, int(_of_row(ignored, row)) - row.left)
        return (Penalties(repetition=float(given.penalty), ignore=skip),)
    if kind is processors.NoRepeatNGramLogitsProcessor:
        return (NoRepeatNGram(given.ngram_size),)
    if kind in (processors.SequenceBiasLogitsProcessor, processors.NoBadWordsLogitsProcessor):
        return (Bias(given.sequence_bias),) if given.sequence_bias else ()
    if kind is processors.SuppressTokensLogitsProcessor:
        return (Bias({(int(t),): -math.inf for t in given.suppress_tokens.tolist()}),)
    if kind is processors.SuppressTokensAtBeginLogitsProcessor:
        return (SuppressedAt(given.begin_index - width, given.begin_suppress_tokens.tolist()),)
    if kind is processors.ForcedBOSTokenLogitsProcessor:
        return (Forced(1 - width, given.bos_token_id),)
    if kind is processors.ForcedEOSTokenLogitsProcessor and given.eos_token_id.numel() == 1:
        return (Forced(given.max_length - 1 - width, int(given.eos_token_id)),)
    if kind is processors.PrefixConstrainedLogitsProcessor:
        return (Prefix(_prefix_function(given), row.number, row.ids),)
    return None


def _of_row(values: Any, row: Row) -> Any:
    """The value of this row, where each may have one of its own."""
    each = torch.as_tensor(values).reshape(-1)
    return each[row.number] if len(each) > 1 else each[0]


def _prefix_function(given: Any) -> Any:
    """The function that a prefix processor holds, under a name that is not public.

    Raises:
        CapabilityError: it has another name in this release.
    """
    held = vars(given)
    if not callable(held.get("_prefix_allowed_tokens_fn")):
        raise CapabilityError(
            f"prefix_allowed_tokens_fn is set and this transformers keeps it elsewhere ({', '.join(held)}); give it "
            "as a logits processor of your own"
        )
    return held["_prefix_allowed_tokens_fn"]
