"""``speculative_generate_step`` of mlx-lm, first round: the target's own sample decides."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

import attrs

from flashspec_conformance.chain import Levels
from flashspec_conformance.functions.function import MODELS, SAMPLED, Function, signature
from flashspec_conformance.functions.peers.tables import TEMPERATURE, sequence

PARAMETERS = (
    *("prompt", "model", "draft_model", "stream", "num_draft_tokens", "max_tokens", "sampler", "logits_processors"),
    *("prompt_cache", "prefill_step_size", "kv_bits", "kv_group_size", "quantized_kv_start"),
)


@attrs.define(eq=False)
class Cache:
    """A cache that holds the ids themselves."""

    ids: list[int] = attrs.Factory(list)
    state: tuple[()] = ()

    def is_trimmable(self) -> bool:
        """It can forget its last ids."""
        return True

    def trim(self, count: int) -> int:
        """Forget some."""
        del self.ids[len(self.ids) - count :]
        return count


@attrs.frozen(eq=False)
class Model:
    """A table with the interface of mlx-lm's models."""

    levels: Levels

    def make_cache(self) -> list[Cache]:
        """One layer."""
        return [Cache()]

    def __call__(self, ids: Any, cache: list[Cache]) -> Any:
        """Logits ``[1, n, V]`` of the ``n`` new ids."""
        new = ids[0].tolist()
        cache[0].ids += new
        return import_module("mlx.core").array(sequence(self.levels, cache[0].ids)[-len(new) :])[None]


def step() -> Function:
    """The tokens of the first round, sampled with the sampler that mlx-lm makes for the temperature."""
    mx, generate = import_module("mlx.core"), import_module("mlx_lm.generate")
    signature(generate.speculative_generate_step, PARAMETERS, "mlx_lm.generate.speculative_generate_step")
    sampler = import_module("mlx_lm.sample_utils").make_sampler(temp=TEMPERATURE)

    def call(p: Levels, q: Levels, drafts: Any, coins: Any) -> tuple[list[int], int]:
        tokens: list[int] = []
        rounds = generate.speculative_generate_step(
            mx.array([0]), Model(p), Model(q), num_draft_tokens=len(q), max_tokens=len(q) + 1, sampler=sampler
        )
        for token, _, drafted in rounds:
            tokens.append(int(token))
            if not drafted:
                break
        return tokens, len(tokens) - 1

    version = f"mlx-lm {metadata.version('mlx-lm')}"
    return Function(
        "mlx_lm speculative_generate_step", call, MODELS, mx.random.seed, frozenset({SAMPLED}), version=version
    )
