"""The facade: a target, a pool of drafts and a selector, ready to generate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from flashspec import registry, selectors
from flashspec.contract import Backend
from flashspec.decoding import Engine, Generation, Request, Result
from flashspec.decoding.loop import Trace, generate
from flashspec.decoding.method import AUTO, method_of
from flashspec.decoding.text import Decode
from flashspec.drafts.spec import DEFAULT_DRAFT_MAX, DEFAULT_DRAFTS
from flashspec.errors import CapabilityError
from flashspec.hf.calibrate import cost_table
from flashspec.hf.generate import id_set, run_generate
from flashspec.hf.lm import HFCausalLM
from flashspec.hf.loading import Loaded
from flashspec.hf.pool import PoolContext, pool
from flashspec.selectors.types import Arms


def decoder(tokenizer: Any) -> Decode:
    """Token ids to text without special tokens, spaces untouched."""

    def decode(ids: Sequence[int]) -> str:
        return str(
            tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )

    return decode


@attrs.frozen(eq=False)
class Speculator:
    """Speculative decoding for one model; also a callable for ``model.generate(custom_generate=...)``."""

    target: Loaded
    engine: Engine
    streamer: Any = None
    """A transformers streamer for ``custom_generate``, which transformers does not hand over itself."""

    @classmethod
    def build(
        cls,
        target: Loaded,
        drafts: Sequence[str] = DEFAULT_DRAFTS,
        *,
        draft_max: int = DEFAULT_DRAFT_MAX,
        selector: str | selectors.Selector = "cht",
        backend: str | None = None,
        recalibrate: bool = False,
        method: str = AUTO,
    ) -> Speculator:
        """Load the drafts, measure (or read) what steps cost here, and fix the pool.

        Args:
            target: from :func:`flashspec.hf.load`.
            drafts: what to choose from besides "none"; an empty list is plain decoding.
            draft_max: longest draft in tokens.
            selector: a name of ``flashspec.selectors``, ``fixed:DRAFT/LENGTH``, or a selector.
            backend: a backend's name or ``module:attr``; None takes the best for the device.
            recalibrate: measure the costs again even if a table is kept.
            method: acceptance rule, ``token``, ``block``, ``path`` or ``auto`` (see ``decoding.method``).

        Raises:
            UnknownName: a draft, selector or backend that is not known.
            BackendUnavailable: the backend cannot be loaded.
            CapabilityError: a model, cache, vocabulary or dtype that cannot be used.
            ModelError: weights that cannot be had.
        """
        chosen = selectors.from_spec(selector) if isinstance(selector, str) else selector
        verifier = registry.best_backend(target.device) if backend is None else registry.get_backend(backend)
        check_backend(verifier, target)
        lm = HFCausalLM.of(target.model, verifier)
        drafters = pool(PoolContext(target, lm, verifier, draft_max), drafts)
        table = cost_table(target, lm, verifier, drafters, again=recalibrate)
        arms = Arms.of(
            {d.name: d.lengths for d in drafters}, tiers={d.name: 0 if d.free else 2 for d in drafters}
        )
        engine = Engine(
            lm=lm,
            drafters=drafters,
            backend=verifier,
            selector=chosen,
            arms=arms,
            cost=table.of(arms),
            decode=decoder(target.tokenizer),
            clock=time.perf_counter,
            method=method_of(method, verifier.capabilities.methods, drafters),
        )
        return cls(target, engine)

    def default_request(self, prompt_ids: Iterable[int], **overrides: Any) -> Request:
        """A greedy request with the model's own EOS ids; ``overrides`` are fields of ``Request``."""
        fields = {"eos_ids": eos_ids(self.target), "max_new_tokens": 128, **overrides}
        return Request(prompt_ids=tuple(int(t) for t in prompt_ids), **fields)

    def stream(self, request: Request, trace: Trace | None = None) -> Generation:
        """An iterator of text chunks; its ``result`` is there at the end."""
        return Generation(self.engine, request, trace=trace)

    def generate(self, request: Request, trace: Trace | None = None) -> Result:
        """Run a request to its end."""
        return generate(self.engine, request, trace=trace)

    def with_streamer(self, streamer: Any) -> Speculator:
        """The same object with a transformers streamer that gets tokens as they are committed."""
        return attrs.evolve(self, streamer=streamer)

    def __call__(self, model: Any, input_ids: Any, **kwargs: Any) -> Any:
        """The loop that ``model.generate(custom_generate=speculator)`` calls; see ``hf.generate``."""
        return run_generate(self, model, input_ids, **kwargs)


def eos_ids(target: Loaded) -> frozenset[int]:
    """Every id that ends a text, from the model's generation config, else its tokenizer."""
    configured = target.model.generation_config.eos_token_id
    if configured is None:
        configured = target.tokenizer.eos_token_id
    return id_set(configured)


def check_backend(backend: Backend, target: Loaded) -> None:
    """Refuse a backend that cannot read this target's logits.

    Raises:
        CapabilityError: a device or dtype that the backend does not declare.
    """
    able = backend.capabilities
    if able.arrays != "torch":
        return
    if target.device not in able.devices:
        raise CapabilityError(
            f"backend {backend.name} runs on {', '.join(sorted(able.devices))}; the target is on {target.device}; "
            "choose another backend or device"
        )
    if target.dtype not in able.dtypes:
        raise CapabilityError(
            f"backend {backend.name} reads {', '.join(sorted(able.dtypes))}; the target's logits are {target.dtype}; "
            "choose another backend or dtype"
        )
