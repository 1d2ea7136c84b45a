"""``evaluate_posterior`` of EAGLE, given a tree that is one chain."""

from __future__ import annotations

import random
from importlib import import_module, metadata
from typing import Any

from flashspec_conformance.functions.function import LOGITS, OWN, SAMPLED, Function, signature

PARAMETERS = (
    *("logits", "candidates", "logits_processor", "cart_candidates_prob", "op", "p_indices", "tree_candidates"),
    "b_indices",
)


def temperature_1() -> Function:
    """Logits whose law at temperature 1 is the target's."""
    return _function(1.0)


def temperature_07() -> Function:
    """Logits whose law at temperature 0.7 is the target's, with the processor that EAGLE makes for it."""
    return _function(0.7)


def _function(temperature: float) -> Function:
    torch, utils = import_module("torch"), import_module("eagle.model.utils")
    signature(utils.evaluate_posterior, PARAMETERS, "eagle.model.utils.evaluate_posterior")
    processor = utils.prepare_logits_processor(temperature)

    def seed(value: int) -> None:
        random.seed(value)
        torch.manual_seed(value)

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        ids, laws = torch.from_numpy(drafts), torch.from_numpy(q).exp()
        gamma = len(drafts)
        chances = torch.cat([torch.ones(1), laws[torch.arange(gamma), ids]])[None]
        candidates = torch.cat([torch.zeros(1, dtype=torch.int64), ids])[None]
        _, accepted, law = utils.evaluate_posterior(
            torch.from_numpy(p)[None] * temperature, candidates, processor, chances, [row[None] for row in laws],
            [[0] * (gamma + 1)], candidates, [[[]] * (gamma + 1)],
        )  # fmt: skip
        last = torch.multinomial(law, 1)
        return torch.cat([ids[: int(accepted)], last]).numpy(), int(accepted)

    name, version = (
        f"eagle evaluate_posterior, temperature {temperature:g}",
        f"eagle-llm {metadata.version('eagle-llm')}",
    )
    return Function(name, call, OWN, seed, frozenset({SAMPLED}), rows=LOGITS, dtype="float32", version=version)
