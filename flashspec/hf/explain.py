"""Why two outputs of one model differ: rounding at a near-tie, or another law."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch

from flashspec.errors import ContractError
from flashspec.hf.loading import Loaded

SAME, LONGER, NEAR_TIE, DRAWS, LAW = "same", "longer", "near-tie", "draws", "law"
STEPS = 2
"""Rounding that is allowed for: so many times what the ways of reading the prefix differ by, and so many spacings."""


@attrs.frozen
class Explanation:
    """Where and how two outputs part."""

    verdict: str
    """``same``; ``longer``: one goes on where the other ends; ``near-tie``: rounding decides between the two tokens;
    ``draws``: both tokens have a probability at this temperature; ``law``: the target itself does not do this."""
    reason: str
    """In words."""
    position: int | None = None
    """Of the first new token that differs, from 0; the fields below are about it."""
    tokens: tuple[int, int] | None = None
    texts: tuple[str, str] | None = None
    logits: tuple[float, float] | None = None
    """Of the two tokens, read in one forward of the whole prefix."""
    below: tuple[float, float] | None = None
    """How far each is below the largest logit."""
    margin: float | None = None
    """The two logits' difference, without sign."""
    rounding: float | None = None
    """The margin that rounding explains here."""
    spacing: float | None = None
    """Of two neighbouring numbers of the dtype at these logits."""
    dtype: str = ""
    probabilities: tuple[float, float] | None = None
    """At the temperature, where it is above 0."""


def explain(
    target: Loaded, prompt: Sequence[int], first: Sequence[int], second: Sequence[int], temperature: float = 0.0
) -> Explanation:
    """Compare new tokens after one prompt.

    The prefix that both share is read in five ways that are the same function: at once, the last token by itself,
    with the tokens that follow behind it, and beside a second row. What they differ by is rounding.

    Raises:
        ContractError: an empty prompt, ids outside the vocabulary, or a negative temperature.
    """
    if not len(prompt):
        raise ContractError("the prompt is empty; allowed: at least one token, as logits follow a token")
    if not (np.isfinite(temperature) and temperature >= 0):
        raise ContractError(f"temperature is {temperature}; allowed: a finite number >= 0 (0 = greedy)")
    vocab = int(target.model.get_output_embeddings().weight.shape[0])
    wild = [t for t in itertools.chain(prompt, first, second) if not 0 <= t < vocab]
    if wild:
        raise ContractError(f"a token id is {wild[0]}; allowed: ids of the target, [0, {vocab})")
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    if place is None:
        if len(first) == len(second):
            return Explanation(SAME, "the tokens are the same")
        shared = min(len(first), len(second))
        told = f"the first {shared} tokens are the same and one output goes on: EOS, a stop text or a budget ended it"
        return Explanation(LONGER, told)
    prefix = [*prompt, *first[:place]]
    ways = readings(target.model, prefix, (first[place:], second[place:]))
    return _judged(target, place, (int(first[place]), int(second[place])), ways, temperature)


@torch.inference_mode()
def readings(model: Any, prefix: Sequence[int], rest: tuple[Sequence[int], Sequence[int]]) -> torch.Tensor:
    """``[4 or 5, V]`` float64: logits after the prefix, each read in another shape of the same computation."""

    def ids(*rows: Sequence[int]) -> torch.Tensor:
        return torch.tensor([list(row) for row in rows], device=model.device)

    last = len(prefix) - 1
    found = [model(ids(prefix)).logits[0, last]]
    if last:
        held = model(ids(prefix[:-1]), use_cache=True).past_key_values
        found.append(model(ids(prefix[-1:]), past_key_values=held, use_cache=True).logits[0, 0])
    found += [model(ids([*prefix, *tail[:8]])).logits[0, last] for tail in rest]
    found.append(model(ids(prefix, prefix)).logits[1, last])
    return torch.stack(found).double().cpu()


def _judged(target: Loaded, place: int, tokens: tuple[int, int], ways: torch.Tensor, temperature: float) -> Explanation:
    """What the readings say of the two tokens."""
    pair = ways[:, list(tokens)]
    gaps, below = pair[:, 0] - pair[:, 1], ways.max(-1).values[:, None] - pair
    own = getattr(torch, target.dtype)
    size = pair[0].abs().max().to(own)
    spacing = float(torch.nextafter(size, torch.tensor(torch.inf, dtype=own)) - size)
    rounding = STEPS * (float(gaps.max() - gaps.min()) + spacing)
    margin, far = abs(float(gaps[0])), below.min(0).values.tolist()
    facts: dict[str, Any] = {
        "position": place,
        "tokens": tokens,
        "texts": tuple(target.tokenizer.decode([t]) for t in tokens),
        "logits": tuple(pair[0].tolist()),
        "below": tuple(below[0].tolist()),
        "margin": margin,
        "rounding": rounding,
        "spacing": spacing,
        "dtype": target.dtype,
    }
    wrong = [i for i in (0, 1) if far[i] > rounding]
    if temperature > 0:
        law = (ways[0] / temperature).softmax(-1)[list(tokens)].tolist()
        told = (
            f"sampled at temperature {temperature:g}: the tokens have probabilities {law[0]:.3g} and {law[1]:.3g}; two "
            "draws may differ, and with one seed under the rule path they differ only where rounding moves a boundary"
        )
        return Explanation(DRAWS, told, probabilities=tuple(law), **facts)
    if not wrong:
        told = f"a near-tie: the margin is {margin:.3g} and rounding in {target.dtype} explains {rounding:.3g} here"
        return Explanation(NEAR_TIE, told, **facts)
    names = " and ".join(f"output {'AB'[i]} has a token {far[i]:.3g} below the largest logit" for i in wrong)
    told = (
        f"another law: {names}, and rounding in {target.dtype} explains {rounding:.3g} here; other settings "
        "(penalties, bans, a template), other weights, or a verifier that is wrong"
    )
    return Explanation(LAW, told, **facts)
