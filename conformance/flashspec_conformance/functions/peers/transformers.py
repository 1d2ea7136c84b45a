"""``_speculative_sampling`` of transformers, which judges the drafts of assisted generation."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any
from unittest import mock

from flashspec_conformance.functions.function import COINS, LOGITS, OWN, SAMPLED, Function, signature

PARAMETERS = ("candidate_input_ids", "candidate_logits", "candidate_length", "new_logits", "assistant_ensemble_weight")


def own_randomness() -> Function:
    """The function as it is, seeded through ``torch.manual_seed``; the ensemble weight, which is lossy, unset."""
    torch = import_module("torch")
    return _function("transformers._speculative_sampling", OWN, torch.manual_seed, _judge(torch))


def given_coins() -> Function:
    """The same with ``torch.rand_like`` and ``torch.multinomial`` answered from the coins: its rule, not its noise."""
    torch = import_module("torch")
    judge = _judge(torch)

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        given = torch.from_numpy(coins.copy())

        def rand_like(ratio: Any) -> Any:
            return given[:-1].to(ratio.dtype).reshape(ratio.shape)

        def multinomial(law: Any, num_samples: int) -> Any:
            if not bool((law >= 0).all() and law.isfinite().all() and law.sum() > 0):
                raise RuntimeError("multinomial is given NaN, infinity, a negative number or no mass")
            sums = law.double().cumsum(-1)
            return (sums > given[-1] * sums[..., -1:]).to(torch.int64).argmax(-1, keepdim=True)

        with mock.patch.object(torch, "rand_like", rand_like), mock.patch.object(torch, "multinomial", multinomial):
            tokens, accepted = judge(p, q, drafts, None)
        return tokens, accepted

    return _function("transformers._speculative_sampling, given coins", COINS, None, call)


def _function(name: str, randomness: str, reseed: Any, call: Any) -> Function:
    version = f"transformers {metadata.version('transformers')}"
    kinds = frozenset({SAMPLED})
    return Function(name, call, randomness, reseed, kinds, rows=LOGITS, dtype="float32", version=version)


def _judge(torch: Any) -> Any:
    wrapped = import_module("transformers.generation.utils")._speculative_sampling
    signature(wrapped, PARAMETERS, "transformers.generation.utils._speculative_sampling")

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> tuple[Any, int]:
        ids = torch.from_numpy(drafts)[None]
        tokens, accepted = wrapped(ids, torch.from_numpy(q)[None], len(drafts), torch.from_numpy(p)[None])
        return tokens[0].numpy(), int(accepted)

    return call
