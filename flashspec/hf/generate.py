"""Being the loop of ``model.generate(custom_generate=...)``: what transformers hands over, translated.

Every option that transformers prepared is honoured or refused by name before any work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from transformers.generation import logits_process as processors
from transformers.generation import stopping_criteria as criteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from flashspec.decoding import Generation, Request
from flashspec.decoding.commit import ExtraStop
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

OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
"""Extra results that this loop does not keep."""

NATIVE = (criteria.MaxLengthCriteria, criteria.EosTokenCriteria)
"""Criteria that the commit path checks itself."""


def check_call(speculator: Speculator, model: Any, input_ids: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Refuse what this loop cannot do, naming it.

    Raises:
        ContractError: another model than the speculator's target.
        CapabilityError: a batch, beams, a static or warm cache, a logits processor that is not folded in.
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
    other = [type(p).__name__ for p in kwargs.get("logits_processor") or [] if not isinstance(p, FOLDED)]
    if other:
        raise CapabilityError(
            f"logits processors {', '.join(other)} are set; allowed: temperature, top-k, top-p, min-p, minimal "
            "lengths; switch the others off"
        )
    past = kwargs.get("past_key_values")
    if past is not None and (past.get_seq_length() or any("Static" in type(x).__name__ for x in past.layers)):
        raise CapabilityError("a static or filled cache was given; allowed: none; leave past_key_values out")


def _request(input_ids: torch.Tensor, mask: torch.Tensor | None, config: Any) -> Request:
    ids = input_ids[0]
    if mask is not None and not bool(mask.all()):
        first = int(torch.argmax(mask[0].to(torch.int64)))
        if not bool(mask[0, first:].all()):
            raise CapabilityError("attention_mask has holes; allowed: zeros on the left only")
        ids = ids[first:]
    width = int(input_ids.shape[1])
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
    request = _request(input_ids, mask, config)
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
