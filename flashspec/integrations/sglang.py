"""The verifier in place of SGLang's ``chain_speculative_sampling_triton``: a kernel swap, with the engine's own coins.

SGLang calls it with ``--speculative-use-rejection-sampling`` and topk 1. Its own kernel emits the last token of the
vocabulary where rounding leaves no residual; this one draws from the target there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from inspect import signature
from typing import Any

import torch

from flashspec import registry
from flashspec.contract import Backend
from flashspec.errors import BackendUnavailable
from flashspec.integrations import tensors
from flashspec.integrations.guard import LOG, Installed, Seam, install, original, version_of

NAMES, VERSIONS = ("sglang",), ("0.5.23",)
MODULE, NAME = "sglang.kernels.ops.speculative.reject_sampling", "chain_speculative_sampling_triton"
PARAMETERS = (
    *("predicts", "accept_index", "accept_token_num", "candidates", "retrive_index", "retrive_next_token"),
    *("retrive_next_sibling", "uniform_samples", "uniform_samples_for_final_sampling", "target_probs", "draft_probs"),
    *("threshold_single", "threshold_acc", "deterministic", "block_verification"),
)
REGISTER = ("target", "hook", "hook_type", "source")
SWITCH = "FLASHSPEC_SGLANG"


def use(backend: str | None = None) -> Installed:
    """Replace the function in this process; ``Installed.uninstall`` puts it back.

    Raises:
        BackendUnavailable: another SGLang, or its function has other parameters; nothing is changed then.
    """
    return install(NAMES, VERSIONS, (_seam(_verifier(backend)),))


def register() -> None:
    """The entry point of ``sglang.srt.plugins``: SGLang calls it in every process. Off unless FLASHSPEC_SGLANG is 1.

    Raises:
        BackendUnavailable: as :func:`use`, or the hook registry has other parameters; nothing is registered then.
    """
    if os.environ.get(SWITCH) != "1":
        return
    engine, seam = version_of(NAMES, VERSIONS), _seam(_verifier(os.environ.get(f"{SWITCH}_BACKEND")))
    own = original(seam)
    hooks: Any = import_module("sglang.srt.plugins.hook_registry")
    found = tuple(signature(hooks.HookRegistry.register).parameters)
    if found != REGISTER:
        raise BackendUnavailable(
            f"HookRegistry.register has parameters ({', '.join(found)}); allowed: ({', '.join(REGISTER)}); nothing was "
            "changed"
        )
    hooks.HookRegistry.register(f"{MODULE}.{NAME}", seam.make(own), hooks.HookType.REPLACE)
    LOG.info("flashspec verifies in %s: %s.%s", engine, MODULE, NAME)


def _verifier(backend: str | None) -> Backend:
    if backend:
        return registry.get_backend(backend)
    return registry.best_backend("cuda" if torch.cuda.is_available() else "cpu")


def _seam(verifier: Backend) -> Seam:
    def make(own: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: chain_speculative_sampling(verifier, *given, **named)

    return Seam(MODULE, NAME, (PARAMETERS,), make)


def chain_speculative_sampling(
    verifier: Backend,
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
    *,
    block_verification: bool = False,
) -> None:
    """Judge chains ``candidates [B, n]``, the root first, and write what was found into the first three tensors.

    ``predicts [B n]`` gets each emitted token at the index of the node before it, ``accept_index [B, m]`` the
    indices of the root and of the accepted drafts, ``accept_token_num [B]`` their number without the root. Of
    ``target_probs [B, n, V]`` and ``draft_probs [B, n - 1, V]`` nothing is changed; thresholds are not read, as the
    kernel does not read them. A row without a law leaves ``predicts`` as it was there.

    Raises:
        ContractError: shapes that do not fit together.
    """
    drafts = candidates[:, 1:]
    given = tensors.uniforms(uniform_samples[:, : drafts.shape[1]], uniform_samples_for_final_sampling)
    method = "block" if block_verification else "token"
    near = draft_probs[:, : drafts.shape[1]]
    found = tensors.judge(verifier, target_probs, near, drafts, given, method)
    place = torch.arange(candidates.shape[1], device=candidates.device)
    index = retrive_index.to(torch.int64)
    emitted = place < found.num_emitted[:, None]
    # Places that emit nothing write back what is there: no tensor's shape depends on the verdict.
    predicts.scatter_(
        0, index.flatten(), torch.where(emitted, found.tokens, predicts[index]).to(predicts.dtype).flatten()
    )
    held = place <= found.num_accepted[:, None]
    width = min(accept_index.shape[1], candidates.shape[1])
    accept_index[:, :width] = torch.where(held, index, -1)[:, :width].to(accept_index.dtype)
    accept_token_num.copy_(found.num_accepted)
