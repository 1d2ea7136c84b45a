"""The verifier in place of ``_speculative_sampling``, which judges the drafts of transformers' assisted generation.

For callers that must keep ``assistant_model=``. Whoever can change the call is better served by
``custom_generate=Speculator...``, which takes batches and several drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from flashspec import registry
from flashspec.contract import Backend, Dense, Padded, Sampling, Status, Uniforms
from flashspec.errors import CapabilityError, ContractError, NumericalError
from flashspec.integrations.guard import Installed, Seam, install

VERSIONS = ("5.19", "5.20", "5.21", "5.22", "5.23", "5.24")
PARAMETERS = ("candidate_input_ids", "candidate_logits", "candidate_length", "new_logits", "assistant_ensemble_weight")


def use(method: str = "token", backend: str | None = None) -> Installed:
    """Let assisted generation judge drafts by FlashSpec from now on.

    Args:
        method: ``token`` or ``block``, which keeps at least as many drafts on average.
        backend: a verifier's name; None takes the best for each tensor's device.

    Raises:
        BackendUnavailable: another transformers, or its function has other parameters; nothing is changed then.
        CapabilityError: another method, or one that the backend does not have.
    """
    if method not in ("token", "block"):
        raise CapabilityError(f"method is {method!r}; allowed: token, block")
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    held = {d: registry.best_backend(d) if backend is None else registry.get_backend(backend) for d in devices}
    for own in held.values():
        if method not in own.capabilities.methods:
            known = ", ".join(sorted(own.capabilities.methods))
            raise CapabilityError(f"backend {own.name} has no method {method}; allowed: {known}")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def judge(
            candidate_input_ids: torch.Tensor,
            candidate_logits: torch.Tensor,
            candidate_length: int,
            new_logits: torch.Tensor,
            assistant_ensemble_weight: float | None = None,
        ) -> Any:
            if assistant_ensemble_weight is not None:  # lossy by design, and asked for
                return original(
                    candidate_input_ids, candidate_logits, candidate_length, new_logits, assistant_ensemble_weight
                )
            drafts = candidate_input_ids[:, candidate_input_ids.shape[1] - candidate_length :]
            tokens = speculative_sampling(held[new_logits.device.type], drafts, candidate_logits, new_logits, method)
            return tokens, torch.tensor(tokens.shape[1] - 1, device=tokens.device)

        return judge

    seam = Seam("transformers.generation.utils", "_speculative_sampling", (PARAMETERS,), make)
    return install(("transformers",), VERSIONS, (seam,))


def speculative_sampling(
    verifier: Backend,
    drafts: torch.Tensor,
    draft_logits: torch.Tensor,
    target_logits: torch.Tensor,
    method: str = "token",
) -> torch.Tensor:
    """Tokens ``[1, n + 1]`` after ``n`` accepted drafts ``[1, k]``; randomness from torch's generator.

    Logits are processed (temperature and filters are in them): ``[1, k, V]`` of the law that the drafts were drawn
    from, ``[1, k + 1, V]`` of the target.

    Raises:
        ContractError: other shapes.
        NumericalError: a row that is reached holds NaN, plus infinity or no token at all.
    """
    count, vocab = drafts.shape[-1], target_logits.shape[-1]
    if (drafts.shape, draft_logits.shape, target_logits.shape) != (
        (1, count),
        (1, count, vocab),
        (1, count + 1, vocab),
    ):
        raise ContractError(
            f"drafts {tuple(drafts.shape)}, their logits {tuple(draft_logits.shape)} and target logits "
            f"{tuple(target_logits.shape)}; allowed: [1, k], [1, k, V] and [1, k + 1, V]"
        )
    target, near, ids = target_logits, draft_logits.to(target_logits), drafts
    if verifier.capabilities.arrays != "torch":
        target, near = (verifier.asarray(x.float().cpu().numpy(), "float32") for x in (target, near))
        ids = verifier.asarray(drafts.cpu().numpy(), "int64")
    one = Sampling.of(1)
    found = verifier.verify(target, ids, Dense(near, one), Padded(), one, _uniforms(verifier, drafts), method)
    tokens = torch.as_tensor(verifier.to_numpy(found.tokens), dtype=drafts.dtype)[0]
    emitted, accepted = (int(verifier.to_numpy(x)[0]) for x in (found.num_emitted, found.num_accepted))
    if emitted == accepted:
        why = Status(int(verifier.to_numpy(found.status)[0])).name
        raise NumericalError(
            f"the target's logits make no law in row {accepted} ({why}); "
            "check the weights and dtype, float32 often helps"
        )
    return tokens[:emitted][None].to(drafts.device)


def _uniforms(verifier: Backend, drafts: torch.Tensor) -> Uniforms:
    """Explicit integers from torch's generator, on the device of the drafts."""
    batch, count = drafts.shape
    coins = torch.randint(2**32, (batch, count)).numpy().astype(np.uint32)
    low, high = torch.randint(2**32, (2, batch, count + 1)).numpy().astype(np.uint64)
    where = drafts.device.type if verifier.capabilities.arrays == "torch" else "cpu"
    return Uniforms(
        verifier.asarray(low | high << np.uint64(32), "uint64", where), verifier.asarray(coins, "uint32", where)
    )
