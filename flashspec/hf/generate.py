"""Being the loop of ``model.generate(custom_generate=...)``: what transformers hands over, translated.

Every option that transformers prepared is honoured or refused by name before any work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from transformers.generation import logits_process as processors
from transformers.generation import stopping_criteria as criteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from flashspec.decoding import Generation, Request
from flashspec.decoding.commit import ExtraStop
from flashspec.decoding.processing import Bias, Forced, NoRepeatNGram, Penalties, Processor, SuppressedAt
from flashspec.errors import CapabilityError, ContractError

if TYPE_CHECKING:
    from flashspec.hf.speculator import Speculator

FOLDED = (
    processors.TemperatureLogitsWarper,
    processors.TopKLogitsWarper,
    processors.TopPLogitsWarper,
    processors.MinPLogitsWarper,
    processors.MinLengthLogitsProcessor,
    processors.MinNewTokensLengthLogitsProcessor,
)
"""Processors whose settings become the request's own sampling parameters."""

NAMED = {
    processors.PrefixConstrainedLogitsProcessor: "prefix_allowed_tokens_fn",
    processors.InfNanRemoveLogitsProcessor: "remove_invalid_values",
    processors.ExponentialDecayLengthPenalty: "exponential_decay_length_penalty",
    processors.TypicalLogitsWarper: "typical_p",
    processors.EpsilonLogitsWarper: "epsilon_cutoff",
    processors.EtaLogitsWarper: "eta_cutoff",
    processors.TopHLogitsWarper: "top_h",
    processors.LogitNormalization: "renormalize_logits",
    processors.EncoderRepetitionPenaltyLogitsProcessor: "encoder_repetition_penalty",
    processors.EncoderNoRepeatNGramLogitsProcessor: "encoder_no_repeat_ngram_size",
}
"""The settings behind processors that are refused."""

OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
"""Extra results that this loop does not keep."""

NATIVE = (criteria.MaxLengthCriteria, criteria.EosTokenCriteria)
"""Criteria that the commit path checks itself."""


def check_call(speculator: Speculator, model: Any, input_ids: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Refuse what this loop cannot do, naming it.

    Raises:
        ContractError: another model than the speculator's target.
        CapabilityError: a batch, beams, a static or warm cache.
    """
    if model is not speculator.target.model:
        raise ContractError("this speculator was built for another model; build one for the model that generates")
    config = kwargs["generation_config"]
    if (config.num_beams or 1) != 1:
        raise CapabilityError(f"num_beams is {config.num_beams}; allowed: 1; speculation samples or is greedy")
    if input_ids.shape[0] != 1:
        raise CapabilityError(f"a batch of {input_ids.shape[0]} was given; allowed: 1; call generate once per prompt")
    asked = [name for name in OUTPUTS if getattr(config, name, False)]
    if asked:
        raise CapabilityError(f"{', '.join(asked)} is set; allowed: sequences only; switch it off")
    if kwargs.get("inputs_embeds") is not None:
        raise CapabilityError("inputs_embeds was given; allowed: input_ids")
    past = kwargs.get("past_key_values")
    if past is not None and (past.get_seq_length() or any("Static" in type(x).__name__ for x in past.layers)):
        raise CapabilityError("a static or filled cache was given; allowed: none; leave past_key_values out")


def translated(given: Any, width: int, left: int) -> tuple[Processor, ...]:
    """The prepared logits processors as processors of ours, in their order.

    ``width`` is the prompt's length with its padding, ``left`` how much of it is padding.

    Raises:
        CapabilityError: processors that have no counterpart here, all of them named.
    """
    made = [_translated(p, width, left) for p in given or [] if type(p) not in FOLDED]
    unknown = [p for p in made if not isinstance(p, tuple)]
    if unknown:
        names = ", ".join(f"{type(p).__name__} ({NAMED.get(type(p), 'your own')})" for p in unknown)
        raise CapabilityError(
            f"logits processors {names} are set; allowed: temperature, top-k, top-p, min-p, minimal lengths, "
            "repetition penalty, no-repeat n-grams, bad words, sequence bias, suppressed and forced tokens; switch "
            "the others off, or decode with Speculator.generate and processors of flashspec.decoding.processing"
        )
    return tuple(p for found in made for p in found)


def _translated(given: Any, width: int, left: int) -> Any:
    """The counterparts of one processor as a tuple, or the processor itself where there is none."""
    kind = type(given)
    if kind is processors.RepetitionPenaltyLogitsProcessor:
        ignored = given.prompt_ignore_length
        skip = 0 if ignored is None else max(0, int(torch.as_tensor(ignored).reshape(-1)[0]) - left)
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
    return given


def _request(input_ids: torch.Tensor, mask: torch.Tensor | None, config: Any, given: Any) -> Request:
    ids = input_ids[0]
    if mask is not None and not bool(mask.all()):
        first = int(torch.argmax(mask[0].to(torch.int64)))
        if not bool(mask[0, first:].all()):
            raise CapabilityError("attention_mask has holes; allowed: zeros on the left only")
        ids = ids[first:]
    width = int(input_ids.shape[1])
    own = translated(given, width, width - len(ids))
    room = int(config.max_length) - width
    least = max(int(config.min_new_tokens or 0), int(config.min_length or 0) - width, 0)
    sampled = bool(config.do_sample)
    return Request(
        prompt_ids=tuple(ids.tolist()),
        max_new_tokens=max(room, 0),
        min_new_tokens=min(least, max(room, 0)),
        temperature=_or(config.temperature, 1.0) if sampled else 0.0,
        top_k=int(config.top_k or 0) if sampled else 0,
        top_p=_or(config.top_p, 1.0) if sampled else 1.0,
        min_p=_or(config.min_p, 0.0) if sampled else 0.0,
        seed=int(torch.randint(2**62, ())) if sampled else 0,
        eos_ids=id_set(config.eos_token_id),
        processors=own,
    )


def id_set(ids: Any) -> frozenset[int]:
    """Token ids given as nothing, one id or several."""
    return frozenset() if ids is None else frozenset(int(i) for i in np.atleast_1d(np.asarray(ids)).tolist())


def check_positions(mask: torch.Tensor | None, positions: torch.Tensor | None, width: int) -> None:
    """Refuse positions other than the ones that the text itself gives.

    Raises:
        CapabilityError: the caller's own ``position_ids``.
    """
    if positions is None:
        return
    ones = torch.ones(1, width, dtype=torch.long, device=positions.device) if mask is None else mask.long()
    usual = (ones.cumsum(-1) - 1)[:, -positions.shape[-1] :]
    kept = ones[:, -positions.shape[-1] :].bool()
    if not torch.equal(positions.reshape(usual.shape)[kept], usual[kept]):
        raise CapabilityError("position_ids of your own were given; allowed: those of the text; leave position_ids out")


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _extra_stop(input_ids: torch.Tensor, given: Any) -> ExtraStop | None:
    """The caller's own stopping criteria as one question about the new tokens."""
    own = [c for c in given or [] if not isinstance(c, NATIVE)]
    if not own:
        return None

    def ends(tokens: tuple[int, ...]) -> bool:
        new = torch.tensor([tokens], dtype=input_ids.dtype, device=input_ids.device)
        ids = torch.cat([input_ids, new], dim=1)
        return any(bool(torch.as_tensor(c(ids, None)).all()) for c in own)

    return ends


def run_generate(speculator: Speculator, model: Any, input_ids: torch.Tensor, **kwargs: Any) -> Any:
    """Generate ``[1, n]`` ids, prompt included, as transformers' own loops return them.

    With ``do_sample`` the seed of the request comes from torch's generator, so ``set_seed`` fixes it.
    """
    check_call(speculator, model, input_ids, kwargs)
    config = kwargs["generation_config"]
    mask = kwargs.get("attention_mask")
    check_positions(mask, kwargs.get("position_ids"), int(input_ids.shape[1]))
    request = _request(input_ids, mask, config, kwargs.get("logits_processor"))
    extra = _extra_stop(input_ids, kwargs.get("stopping_criteria"))
    generation = Generation(attrs.evolve(speculator.engine, extra_stop=extra), request)
    streamer = speculator.streamer if speculator.streamer is not None else kwargs.get("streamer")
    if streamer is not None:
        streamer.put(input_ids.cpu())
    tokens: list[int] = []
    for chunk in generation:
        tokens.extend(chunk.token_ids)
        if streamer is not None and chunk.token_ids:
            streamer.put(torch.tensor(chunk.token_ids))
    if streamer is not None:
        streamer.end()
    new = torch.tensor([tokens], dtype=input_ids.dtype, device=input_ids.device)
    sequences: Any = torch.cat([input_ids, new], dim=1)
    return GenerateDecoderOnlyOutput(sequences=sequences) if config.return_dict_in_generate else sequences
