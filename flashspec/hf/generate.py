"""Being the loop of ``model.generate(custom_generate=...)``: what transformers hands over, translated.

Every option that transformers prepared is honoured or refused by name before any work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from transformers.generation import stopping_criteria as criteria
from transformers.generation.utils import GenerateDecoderOnlyOutput

from flashspec.decoding import Generation, Request
from flashspec.decoding.batch_loop import Batch
from flashspec.errors import CapabilityError, ContractError
from flashspec.hf.lm import HFCausalLM, fixed_layers
from flashspec.hf.translate import Row, check, translate

if TYPE_CHECKING:
    from flashspec.hf.speculator import Speculator

OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")
"""Extra results that this loop does not keep."""

NATIVE = (criteria.MaxLengthCriteria, criteria.EosTokenCriteria)
"""Criteria that the commit path checks itself."""


def check_call(speculator: Speculator, model: Any, input_ids: torch.Tensor, kwargs: dict[str, Any]) -> None:
    """Refuse what this loop cannot do, naming it.

    Raises:
        ContractError: another model than the speculator's target.
        CapabilityError: beams, extra outputs, embeddings, a cache that cannot be used, a streamer of a batch.
    """
    if model is not speculator.target.model:
        raise ContractError("this speculator was built for another model; build one for the model that generates")
    config = kwargs["generation_config"]
    if (config.num_beams or 1) != 1:
        raise CapabilityError(f"num_beams is {config.num_beams}; allowed: 1; speculation samples or is greedy")
    asked = [name for name in OUTPUTS if getattr(config, name, False)]
    if asked:
        raise CapabilityError(f"{', '.join(asked)} is set; allowed: sequences only; switch it off")
    if kwargs.get("inputs_embeds") is not None:
        raise CapabilityError("inputs_embeds was given; allowed: input_ids")
    check_cache(kwargs.get("past_key_values"), config, len(input_ids))
    if speculator.streamer is not None and len(input_ids) > 1:
        raise CapabilityError(
            f"a streamer and a batch of {len(input_ids)} were given; allowed: a streamer for one prompt, as "
            "transformers' streamers take; leave it out, or generate one prompt at a time"
        )


def check_cache(past: Any, config: Any, batch: int) -> None:
    """Refuse caches that cannot be decoded on.

    Raises:
        CapabilityError: a filled one; a static one with windows; one of the caller's own for several prompts.
    """
    if past is None:
        return
    if int(past.get_seq_length()):
        raise CapabilityError("a filled cache was given; allowed: none or an empty one; leave past_key_values out")
    if not any("Static" in type(layer).__name__ for layer in past.layers):
        return
    other = sorted({type(layer).__name__ for layer in past.layers} - {"StaticLayer"})
    if other:
        raise CapabilityError(
            f"a static cache with layers {', '.join(other)} was given; allowed: full attention (StaticLayer), whose "
            "tokens can be taken back; leave cache_implementation and past_key_values out"
        )
    if not all(isinstance(vars(layer).get("cumulative_length"), torch.Tensor) for layer in past.layers):
        raise CapabilityError(
            "static caches of this transformers keep no length that can shrink; allowed: none; leave "
            "cache_implementation and past_key_values out, or use a newer transformers"
        )
    if batch > 1 and config.cache_implementation is None:
        raise CapabilityError(
            f"a static cache of your own and a batch of {batch} were given; allowed: a static cache for one prompt, or "
            'cache_implementation="static", which sets room aside for requests of different lengths'
        )


@attrs.frozen(eq=False)
class Call:
    """What one ``generate`` asks for."""

    input_ids: torch.Tensor
    """``[B, n]``, padded on the left."""
    requests: tuple[Request, ...]


def call_of(input_ids: torch.Tensor, vocab: int, stop: Sequence[str], kwargs: dict[str, Any]) -> Call:
    """Translate the arguments of one call.

    Raises:
        CapabilityError: a mask with holes, positions of one's own, processors that cannot serve.
        ContractError: settings out of range.
    """
    config, mask = kwargs["generation_config"], kwargs.get("attention_mask")
    starts = starts_of(mask, input_ids)
    check_positions(mask, kwargs.get("position_ids"), input_ids)
    given = list(kwargs.get("logits_processor") or [])
    check(given, input_ids, vocab)
    sampled, room = bool(config.do_sample), max(int(config.max_length) - input_ids.shape[1], 0)
    seeds = torch.randint(2**62, (len(input_ids),)).tolist() if sampled else [0] * len(input_ids)
    requests = []
    for number, (start, seed) in enumerate(zip(starts, seeds, strict=True)):
        ids = input_ids[number : number + 1]
        made = translate(given, Row(ids, start, number))
        heat = made.sampling.get("temperature", 1.0)
        requests.append(
            Request(
                prompt_ids=tuple(ids[0, start:].tolist()),
                max_new_tokens=room,
                temperature=heat if sampled else 0.0,
                top_k=int(made.sampling.get("top_k", 0)) if sampled else 0,
                top_p=made.sampling.get("top_p", 1.0) if sampled else 1.0,
                min_p=made.sampling.get("min_p", 0.0) if sampled else 0.0,
                seed=int(seed),
                eos_ids=id_set(config.eos_token_id),
                stop=tuple(stop),
                processors=made.processors,
                ends=ends_of(ids, kwargs.get("stopping_criteria")),
            )
        )
    return Call(input_ids, tuple(requests))


def starts_of(mask: torch.Tensor | None, input_ids: torch.Tensor) -> tuple[int, ...]:
    """Where the text of each row begins.

    Raises:
        CapabilityError: a mask with zeros elsewhere than on the left.
    """
    if mask is None:
        return (0,) * len(input_ids)
    starts = torch.argmax(mask.to(torch.int64), dim=1).tolist()
    for row, start in enumerate(starts):
        if not bool(mask[row, start:].all()):
            raise CapabilityError(
                f"attention_mask of row {row} has holes; allowed: zeros on the left only "
                '(tokenizer.padding_side = "left")'
            )
    return tuple(int(s) for s in starts)


def id_set(ids: Any) -> frozenset[int]:
    """Token ids given as nothing, one id or several."""
    return frozenset() if ids is None else frozenset(int(i) for i in np.atleast_1d(np.asarray(ids)).tolist())


def check_positions(mask: torch.Tensor | None, positions: torch.Tensor | None, input_ids: torch.Tensor) -> None:
    """Refuse positions other than the ones that the text itself gives.

    Raises:
        CapabilityError: the caller's own ``position_ids``.
    """
    if positions is None:
        return
    ones = torch.ones_like(input_ids) if mask is None else mask.long()
    usual = (ones.cumsum(-1) - 1)[:, -positions.shape[-1] :]
    kept = ones[:, -positions.shape[-1] :].bool()
    if not torch.equal(positions.expand(usual.shape)[kept], usual[kept]):
        raise CapabilityError("position_ids of your own were given; allowed: those of the text; leave position_ids out")


def ends_of(ids: torch.Tensor, given: Any) -> Callable[[tuple[int, ...]], bool] | None:
    """The caller's own stopping criteria as one question about the new tokens of the row ``ids [1, n]``."""
    own = [c for c in given or [] if not isinstance(c, NATIVE)]
    if not own:
        return None

    def ends(tokens: tuple[int, ...]) -> bool:
        text = torch.cat([ids, ids.new_tensor([tokens])], dim=1)
        return any(bool(torch.as_tensor(c(text, None)).all()) for c in own)

    return ends


def run_generate(
    speculator: Speculator, model: Any, input_ids: torch.Tensor, stop: str | Sequence[str] = (), **kwargs: Any
) -> Any:
    """Generate ``[B, n]`` ids, prompts included, as transformers' own loops return them.

    With ``do_sample`` the seeds of the requests come from torch's generator, so ``set_seed`` fixes them.
    """
    check_call(speculator, model, input_ids, kwargs)
    config = kwargs["generation_config"]
    call = call_of(input_ids, speculator.engine.lm.vocab, (stop,) if isinstance(stop, str) else stop, kwargs)
    if len(input_ids) == 1:
        rows = [_one(speculator, call, kwargs.get("past_key_values"), kwargs.get("streamer"))]
    else:
        rows = _many(speculator, call, config)
    sequences: Any = joined(input_ids, rows, config)
    return GenerateDecoderOnlyOutput(sequences=sequences) if config.return_dict_in_generate else sequences


def _one(speculator: Speculator, call: Call, past: Any, streamer: Any) -> list[int]:
    """New tokens of a single prompt, shown to the streamer as they come."""
    engine, lm = speculator.engine, speculator.engine.lm
    if past is not None and fixed_layers(past) and isinstance(lm, HFCausalLM):
        engine = attrs.evolve(engine, lm=attrs.evolve(lm, past=past))
    streamer = speculator.streamer if speculator.streamer is not None else streamer
    if streamer is not None:
        streamer.put(call.input_ids.cpu())
    tokens: list[int] = []
    for chunk in Generation(engine, call.requests[0]):
        tokens.extend(chunk.token_ids)
        if streamer is not None and chunk.token_ids:
            streamer.put(torch.tensor(chunk.token_ids))
    if streamer is not None:
        streamer.end()
    return tokens


def _many(speculator: Speculator, call: Call, config: Any) -> list[list[int]]:
    """New tokens of several prompts, decoded together.

    Raises:
        NumericalError: the logits of a row make no law; raised when the others have ended.
    """
    from flashspec.hf.batch import batch_engine  # it imports the speculator

    size = len(call.requests)
    room = None if config.cache_implementation is None else (size, int(config.max_length))
    held = speculator.batch if room is None else None
    engine = batch_engine(speculator, size, room=room) if held is None or held.cost.batches[-1] < size else held
    batch = Batch(engine, size)
    keys = [batch.submit(request) for request in call.requests]
    for _ in batch:
        pass
    for error in batch.errors.values():
        raise error
    return [list(batch.results[key].token_ids) for key in keys]


def joined(input_ids: torch.Tensor, rows: list[list[int]], config: Any) -> torch.Tensor:
    """Prompts and new tokens ``[B, n]``, padded on the right as transformers does.

    Raises:
        ContractError: rows of different lengths and no padding token.
    """
    longest = max(len(row) for row in rows)
    fill = config.pad_token_id
    if fill is None and any(len(row) < longest for row in rows):
        raise ContractError("the rows end at different lengths and pad_token_id is not set; set it")
    padded = [row + [fill] * (longest - len(row)) for row in rows]
    new = torch.tensor(padded, dtype=input_ids.dtype, device=input_ids.device).reshape(len(rows), longest)
    return torch.cat([input_ids, new], dim=1)
