"""The engines that can be asked about, each as the rows of its verifiers at their best settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import Any

import numpy as np

from flashspec.errors import BackendUnavailable, unknown_name
from flashspec_conformance.engines import restated, vllm_v2
from flashspec_conformance.engines.rows import REAL, RESTATED, Row, agreement, either, over_rounds, row
from flashspec_conformance.engines.tails import tails
from flashspec_conformance.functions.function import LOGITS, OWN, SAMPLED, Function
from flashspec_conformance.functions.promises import NOT_DECLARED, NOT_RUN, Finding


def _transformers(draws: int) -> list[Row]:
    peers = import_module("flashspec_conformance.functions.peers.transformers")
    cut = tails(_warped)
    return [
        row("_speculative_sampling, its own noise", peers.own_randomness(), REAL, draws, top_p=cut),
        row("_speculative_sampling, given coins", peers.given_coins(), REAL, draws, top_p=cut),
    ]


def _warped(logits: Any, p: float) -> Any:
    torch, process = import_module("torch"), import_module("transformers.generation.logits_process")
    scores = process.TopPLogitsWarper(p)(None, torch.from_numpy(logits)[None])
    return scores[0].double().softmax(-1).numpy()


def _vllm_v1(draws: int) -> list[Row]:
    peers = import_module("flashspec_conformance.functions.peers.vllm")
    function, how, why = either(peers.v1, restated.vllm_v1)
    cut = tails(_v1_cut) if how == REAL else Finding("top_p", NOT_RUN, "its filter is in the package")
    rows = [row("V1 rejection_sample", function, how, draws, top_p=cut, note=why)]
    if how == REAL:
        rows.append(row("V1 with its sampling parameters, T = 0.7", peers.v1_temperature_07(), how, draws, top_p=cut))
    return rows


def _v1_cut(logits: Any, p: float) -> Any:
    torch, ops = import_module("torch"), import_module("vllm.v1.sample.ops.topk_topp_sampler")
    cut = ops.apply_top_k_top_p_pytorch(torch.from_numpy(logits)[None], None, torch.tensor([p]), allow_cpu_sync=True)
    return cut[0].double().softmax(-1).numpy()


def _vllm_v2(draws: int) -> list[Row]:
    (checked, nan), cut = vllm_v2.agreement(), vllm_v2.filters()
    made = []
    for version, steps in (("vllm 0.32.0", False), ("vllm 0.33.0", True)):
        for block in (False, True):
            rules = vllm_v2.Rules(block, steps=steps)
            name = f"V2 rejection_sample, {'block' if block else 'token'}"
            note = checked if not steps else "after the wheel's source"
            function = _one_round(name, version, rules)
            own = Finding("nonfinite", NOT_DECLARED, nan if not block and not steps else "as the token rule of 0.32")
            made.append(
                row(
                    name,
                    function,
                    RESTATED,
                    draws,
                    rounds=over_rounds(rules),
                    note=note,
                    nonfinite=own,
                    top_p=None if steps else cut,
                )
            )
    return made


def _one_round(name: str, version: str, rules: vllm_v2.Rules) -> Function:
    """One round of fresh seeds."""
    state = {"generator": np.random.default_rng(0)}

    def reseed(seed: int) -> None:
        state["generator"] = np.random.default_rng(seed)

    def many(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, Any]:
        seed = state["generator"].integers(1, 2**62, len(drafts))
        near = q.astype(np.float64)
        tokens, accepted = rules.judge(p.astype(np.float64), near, drafts, seed, np.full(len(drafts), 10))
        return [t[: n + 1] for t, n in zip(tokens, accepted, strict=True)], accepted

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        tokens, accepted = many(p[None], q[None], drafts[None], None)
        return tokens[0], int(accepted[0])

    facts: dict[str, Any] = {"rows": LOGITS, "dtype": "float32", "many": many, "version": version}
    return Function(name, call, OWN, reseed, frozenset({SAMPLED}), **facts)


def _sglang(draws: int) -> list[Row]:
    peers = import_module("flashspec_conformance.functions.peers.sglang")
    rows = []
    for name, real, block in (("token", peers.token, False), ("block", peers.block, True)):
        function = restated.sglang(block)
        note = agreement(real, function)
        rows.append(row(f"chain_speculative_sampling_triton, {name}", function, RESTATED, draws, note=note))
    return rows


def _flashinfer(draws: int) -> list[Row]:
    note = "its kernel needs a GPU; after the wheel's sampling.cuh"
    return [row("chain_speculative_sampling", restated.flashinfer(), RESTATED, draws, note=note)]


ENGINES: Mapping[str, Callable[[int], list[Row]]] = {
    "flashinfer": _flashinfer,
    "sglang": _sglang,
    "transformers": _transformers,
    "vllm-v1": _vllm_v1,
    "vllm-v2": _vllm_v2,
}
"""Name: from the draws of a counted law to the rows."""


def rows_of(name: str, draws: int) -> list[Row]:
    """All rows of an engine.

    Raises:
        UnknownName: no such engine; the known ones are listed.
        BackendUnavailable: what it needs is missing and cannot be restated.
    """
    if name not in ENGINES:
        raise unknown_name("engine", name, sorted(ENGINES))
    try:
        return ENGINES[name](draws)
    except (ImportError, AttributeError, metadata.PackageNotFoundError) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BackendUnavailable(f"engine {name} cannot be asked ({told}); install its package") from error
