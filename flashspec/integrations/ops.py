"""The verifier on probabilities as an operator of ``torch.library``, for ``torch.compile`` and exported programs.

Importing this module registers ``torch.ops.flashspec.judge``. It takes and returns tensors only; backends are the
best ones of the devices that there are when it is imported. Operators on logits, with ragged rows and slots, are
those of ``flashspec_triton.ops``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flashspec import registry
from flashspec.contract import Uniforms
from flashspec.integrations import tensors

NAMESPACE = "flashspec"
BACKENDS = {
    device: registry.best_backend(device) for device in ("cpu", "cuda") if device == "cpu" or torch.cuda.is_available()
}


@torch.library.custom_op(f"{NAMESPACE}::judge", mutates_args=())
def judge(
    target: Tensor, draft: Tensor | None, tokens: Tensor, accept: Tensor, final: Tensor, method: str = "token"
) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens ``[B, K + 1]`` padded with -1, accepted ``[B]``, status ``[B]``, all int64.

    ``target [B, K + 1, V]`` and ``draft [B, K, V]`` are probabilities, ``draft`` None for drafts that were not
    sampled; ``tokens [B, K]`` drafts; ``accept [B, K]`` and ``final [B]`` numbers in ``[0, 1]``.
    """
    given: Uniforms = tensors.uniforms(accept, final)
    found = tensors.judge(BACKENDS[target.device.type], target, draft, tokens.to(torch.int64), given, method)
    return found.tokens, found.num_accepted, found.status


@judge.register_fake
def _(
    target: Tensor, draft: Tensor | None, tokens: Tensor, accept: Tensor, final: Tensor, method: str = "token"
) -> tuple[Tensor, Tensor, Tensor]:
    batch, count = tokens.shape
    one = tokens.new_empty((batch,), dtype=torch.int64)
    return tokens.new_empty((batch, count + 1), dtype=torch.int64), one, torch.empty_like(one)
