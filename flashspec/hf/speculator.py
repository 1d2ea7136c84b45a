"""The facade: a target, a pool of drafts and a selector, ready to generate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from flashspec import registry, selectors
from flashspec.contract import Backend
from flashspec.decoding import Engine, Generation, Request, Result
from flashspec.decoding.batch import BatchEngine
from flashspec.decoding.following import taps_of
from flashspec.decoding.loop import Trace, generate
from flashspec.decoding.method import AUTO, method_of
from flashspec.decoding.shadow import EVERY, check_every, tier
from flashspec.decoding.shared import Shared
from flashspec.decoding.text import Decode
from flashspec.drafts.spec import DEFAULT_DRAFT_MAX, DEFAULT_DRAFTS
from flashspec.errors import CapabilityError, ContractError
from flashspec.hf.calibrate import cost_table
from flashspec.hf.generate import id_set, run_generate
from flashspec.hf.lm import HFCausalLM
from flashspec.hf.loading import Loaded
from flashspec.hf.memory import torch_ran_out
from flashspec.hf.pool import PoolContext, pool
from flashspec.hf.rows import TorchRows
from flashspec.selectors.types import Arms


def decoder(tokenizer: Any) -> Decode:
    """Token ids to text without special tokens, spaces untouched."""

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    return decode


@attrs.frozen(eq=False)
class Speculator:
    """Speculative decoding for one model; also a callable for ``model.generate(custom_generate=...)``."""

    target: Loaded
    engine: Engine
    streamer: Any = None
    """A transformers streamer for ``custom_generate``, which transformers does not hand over itself."""
    batch: BatchEngine | None = None
    """What decodes several prompts together; None lets ``custom_generate`` make it for each call."""

    @classmethod
    def build(
        cls,
        target: Loaded,
        drafts: Sequence[str | Loaded] = DEFAULT_DRAFTS,
        *,
        draft_max: int = DEFAULT_DRAFT_MAX,
        selector: str | selectors.Selector = "cht",
        backend: str | None = None,
        recalibrate: bool = False,
        method: str = AUTO,
        shadow: int = EVERY,
        warm_start: bool = True,
        refresh: bool = True,
    ) -> Speculator:
        """Load the drafts, measure (or read) what steps cost here, and fix the pool.

        Args:
            target: from :func:`flashspec.hf.load`.
            drafts: what to choose from besides "none", loaded models among them; an empty list is plain decoding.
            draft_max: longest draft in tokens.
            selector: a name of ``flashspec.selectors``, ``fixed:DRAFT/LENGTH``, or a selector.
            backend: a backend's name or ``module:attr``; None takes the best for the device.
            recalibrate: measure the costs again even if a table is kept.
            method: acceptance rule, ``token``, ``block``, ``path`` or ``auto`` (see ``decoding.method``).
            shadow: every so many steps drafts that cost a forward are scored on what was emitted; 0: only when
                they play (see ``decoding.shadow``).
            warm_start: start from what the prompt says about free drafts (see ``decoding.warmstart``).
            refresh: keep the costs fresh by the steps that are made (see ``decoding.timings``).

        Raises:
            UnknownName: a draft, selector or backend that is not known.
            BackendUnavailable: the backend cannot be loaded.
            CapabilityError: a model, cache, vocabulary or dtype that cannot be used.
            ModelError: weights that cannot be had.
            ContractError: a negative ``shadow``.
        """
        check_every(shadow)
        chosen = selectors.from_spec(selector) if isinstance(selector, str) else selector
        verifier = registry.best_backend(target.device) if backend is None else registry.get_backend(backend)
        check_backend(verifier, target)
        lm = HFCausalLM.of(target.model, verifier)
        drafters = pool(PoolContext(target, lm, verifier, draft_max), drafts)
        lm = attrs.evolve(lm, taps=taps_of(drafters))
        table = cost_table(target, lm, verifier, drafters, again=recalibrate)
        arms = Arms.of({d.name: d.lengths for d in drafters}, {d.name: tier(d, shadow) for d in drafters})
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
            table=table if refresh else None,
            shadow=shadow,
            warm=warm_start,
            ran_out=torch_ran_out,
        )
        if verifier.capabilities.arrays == "torch":
            engine = attrs.evolve(engine, rows=TorchRows(lm.device))
        return cls(target, engine)

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any,
        assistant_model: Any = None,
        *,
        assistant_tokenizer: Any = None,
        drafts: Sequence[str | Loaded] = DEFAULT_DRAFTS,
        **options: Any,
    ) -> Speculator:
        """For models that are loaded already: what ``generate(assistant_model=...)`` takes, and drafts beside it.

        ``options`` are those of :meth:`build`, which also says what is raised. Without ``assistant_tokenizer`` the
        assistant's ids are taken to mean what the target's do.
        """
        helper = [] if assistant_model is None else [Loaded.of(assistant_model, assistant_tokenizer)]
        return cls.build(Loaded.of(model, tokenizer), [*helper, *drafts], **options)

    def default_request(self, prompt_ids: Iterable[int], **overrides: Any) -> Request:
        """A greedy request with the model's own EOS ids; ``overrides`` are fields of ``Request``.

        ``bad_words`` may have texts among its token sequences (see :func:`flashspec.hf.speculator.word_ids`).
        """
        fields = {"eos_ids": eos_ids(self.target), "max_new_tokens": 128, **overrides}
        if "bad_words" in fields:
            fields["bad_words"] = word_ids(self.target.tokenizer, fields["bad_words"])
        return Request(prompt_ids=tuple(int(t) for t in prompt_ids), **fields)

    def stream(self, request: Request, trace: Trace | None = None, shared: Shared | None = None) -> Generation:
        """An iterator of text chunks; its ``result`` is there at the end.

        Requests with the same ``shared`` learn from each other which draft pays.
        """
        return Generation(self.engine, request, trace=trace, shared=shared)

    def generate(self, request: Request, trace: Trace | None = None, shared: Shared | None = None) -> Result:
        """Run a request to its end; ``shared`` as in :meth:`stream`."""
        return generate(self.engine, request, trace=trace, shared=shared)

    def with_streamer(self, streamer: Any) -> Speculator:
        """The same object with a transformers streamer that gets tokens as they are committed."""
        return attrs.evolve(self, streamer=streamer)

    def for_batches(self, largest: int, **options: Any) -> Speculator:
        """The same object with an engine for up to ``largest`` prompts at a time, kept from call to call.

        ``options`` are those of :func:`flashspec.hf.batch.batch_engine`, which also says what is raised.
        """
        from flashspec.hf.batch import batch_engine  # it imports this module

        return attrs.evolve(self, batch=batch_engine(self, largest, **options))

    def __call__(self, model: Any, input_ids: Any, stop: str | Sequence[str] = (), **kwargs: Any) -> Any:
        """The loop that ``model.generate(custom_generate=speculator)`` calls; see ``hf.generate``.

        ``stop`` are texts that end a row, given to ``generate`` as its own argument: ``stop_strings`` do not get here.
        """
        return run_generate(self, model, input_ids, stop, **kwargs)


def word_ids(tokenizer: Any, words: Iterable[str | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Token sequences of texts, each as it stands and after a space, which most tokenizers write with other tokens.

    A text that the model spells with yet other tokens is not found, as in any engine that forbids words by tokens.

    Raises:
        ContractError: an empty text.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        if not isinstance(word, str):
            found[tuple(word)] = None
            continue
        if not word.strip():
            raise ContractError(f"bad_words has {word!r}; allowed: texts that are not empty")
        for text in (word, f" {word.lstrip()}"):
            found[tuple(tokenizer.encode(text, add_special_tokens=False))] = None
    return tuple(found)


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
