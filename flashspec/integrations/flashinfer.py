"""The verifier in place of FlashInfer's ``chain_speculative_sampling``, for every engine that calls it.

Probabilities in, as FlashInfer's own. What differs: no id outside the law where rounding leaves no residual, and the
first counter counts accepted drafts (the leading run), since later ones are not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flashspec import registry
from flashspec.contract import Backend, Stream, Uniforms
from flashspec.integrations import tensors
from flashspec.integrations.guard import Installed, Seam, install

NAMES, VERSIONS = ("flashinfer-python",), ("0.7.2", "0.7.4")
PARAMETERS = (
    *("draft_probs", "draft_token_ids", "target_probs", "maybe_output_accepted_token_num"),
    *("maybe_output_emitted_draft_token_num", "deterministic", "generator", "seed", "offset"),
)
LOW = 0xFFFFFFFF


def use(method: str = "token", backend: str | None = None) -> Installed:
    """Let ``flashinfer.sampling.chain_speculative_sampling`` be FlashSpec's from now on.

    Raises:
        BackendUnavailable: another FlashInfer, or its function has other parameters; nothing is changed then.
    """
    verifier = registry.best_backend("cuda") if backend is None else registry.get_backend(backend)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: chain_speculative_sampling(verifier, method, *given, **named)

    seam = Seam("flashinfer.sampling", "chain_speculative_sampling", (PARAMETERS,), make)
    return install(NAMES, VERSIONS, (seam,))


def chain_speculative_sampling(
    verifier: Backend,
    method: str,
    draft_probs: torch.Tensor,
    draft_token_ids: torch.Tensor,
    target_probs: torch.Tensor,
    maybe_output_accepted_token_num: torch.Tensor | None = None,
    maybe_output_emitted_draft_token_num: torch.Tensor | None = None,
    deterministic: bool = True,
    generator: torch.Generator | None = None,
    seed: int | torch.Tensor | None = None,
    offset: int | torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens ``[B, n + 1]`` int32, padded with -1, and two counters ``[B]``, which are added to in place.

    ``draft_probs [B, n, V]``, ``draft_token_ids [B, n]``, ``target_probs [B, n + 1, V]``. With ``seed`` and ``offset``
    the result is a function of them and the row; an offset is read modulo 2**32. A row without a law emits -1.

    Raises:
        ContractError: shapes that do not fit together.
    """
    randomness = _randomness(draft_token_ids, generator, seed, offset)
    ids = draft_token_ids.to(torch.int64)
    found = tensors.judge(verifier, target_probs, draft_probs, ids, randomness, method)
    counters = []
    for held in (maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num):
        counter = torch.zeros(len(ids), dtype=torch.int32, device=ids.device) if held is None else held
        counters.append(counter.add_(found.num_accepted.to(counter.dtype)))
    return found.tokens.to(torch.int32), counters[0], counters[1]


def _randomness(ids: torch.Tensor, generator: torch.Generator | None, seed: Any, offset: Any) -> Stream | Uniforms:
    """A stream by seed, offset and row, or fresh numbers of a generator."""
    batch, count = ids.shape
    if seed is None or offset is None:
        low, high = torch.randint(1 << 32, (2, batch, count + 1), generator=generator, device=ids.device)
        coins = torch.randint(1 << 32, (batch, count), generator=generator, device=ids.device)
        return Uniforms(low | high << 32, coins)

    def each(value: Any) -> torch.Tensor:
        return torch.as_tensor(value, device=ids.device).to(torch.int64).reshape(-1).expand(batch).contiguous()

    return Stream(each(seed), each(offset) & LOW, torch.arange(batch, device=ids.device))
