"""Functions of small projects that draft and judge one round with two models: mini-infer and seqspecdecod."""

from __future__ import annotations

from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

from flashspec_conformance.chain import Levels
from flashspec_conformance.functions.function import MODELS, SAMPLED, Function, signature
from flashspec_conformance.functions.peers.tables import TEMPERATURE, sequence

MINI_INFER = ("target_model", "draft_model", "prefix_ids", "k_draft", "temperature")
SEQSPECDECOD = ("draft_model", "target_model", "input_ids", "gamma", "draft_temperature", "target_temperature")


def _rows(levels: Levels, ids: Any) -> Any:
    return import_module("torch").from_numpy(sequence(levels, ids[0].tolist()))[None]


def _function(name: str, call: Any, distribution: str) -> Function:
    version = f"{distribution} {metadata.version(distribution)}"
    seed = import_module("torch").manual_seed
    return Function(name, call, MODELS, seed, frozenset({SAMPLED}), version=version)


def mini_infer() -> Function:
    """``mini_infer.speculative.speculative_step``."""
    torch, wrapped = import_module("torch"), import_module("mini_infer.speculative").speculative_step
    signature(wrapped, MINI_INFER, "mini_infer.speculative.speculative_step")

    def call(p: Levels, q: Levels, drafts: Any, coins: Any) -> tuple[Any, int]:
        target, draft = (lambda ids: (_rows(p, ids), None)), (lambda ids: (_rows(q, ids), None))
        tokens, accepted = wrapped(target, draft, torch.zeros(1, 1, dtype=torch.int64), len(q), TEMPERATURE)
        return tokens, accepted

    return _function("mini_infer speculative_step", call, "mini-infer")


def _seqspecdecod(module: str, attribute: str) -> Function:
    torch, wrapped = import_module("torch"), getattr(import_module(module), attribute)
    signature(wrapped, SEQSPECDECOD, f"{module}.{attribute}")

    def call(p: Levels, q: Levels, drafts: Any, coins: Any) -> tuple[Any, int]:
        models = [lambda ids, own=own: SimpleNamespace(logits=_rows(own, ids)) for own in (q, p)]
        ids, accepted, _ = wrapped(*models, torch.zeros(1, 1, dtype=torch.int64), len(q), TEMPERATURE, TEMPERATURE)
        return ids[0, 1:].numpy(), accepted

    return _function(f"seqspecdecod {attribute}", call, "sequential-speculative-decoding")


def standard_step() -> Function:
    """``standard_speculative_step``: the token rule."""
    return _seqspecdecod("seqspecdecod.standard_sd", "standard_speculative_step")


def naive_hsd_step() -> Function:
    """``naive_hsd_step``: hierarchical speculative decoding, which resamples every place after a rejection."""
    return _seqspecdecod("seqspecdecod.naive_hsd", "naive_hsd_step")


def capped_hsd_step() -> Function:
    """``capped_hsd_step``: hierarchical speculative decoding with capped ratios and one resampled place."""
    return _seqspecdecod("seqspecdecod.capped_hsd", "capped_hsd_step")
