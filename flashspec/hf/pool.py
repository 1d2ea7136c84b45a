"""Building the pool of drafts from what a user names: ``ngram``, ``suffix``, ``early-exit:8``, ``trained:code``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from flashspec import registry
from flashspec.contract import Backend
from flashspec.drafts import Drafter, ModelDrafter, NGram, Suffix
from flashspec.drafts.spec import BUILT_IN_DRAFTS, check_spec
from flashspec.errors import ContractError
from flashspec.hf.early_exit import truncate
from flashspec.hf.lm import HFCausalLM
from flashspec.hf.loading import Loaded, load
from flashspec.hf.vocab import check_vocab


@attrs.frozen(eq=False)
class PoolContext:
    """What a drafter may be built from."""

    target: Loaded
    lm: HFCausalLM
    backend: Backend
    draft_max: int


Factory = Callable[[PoolContext, str], Drafter]


def _integer(name: str, argument: str, default: int) -> int:
    if not argument:
        return default
    if not argument.isdecimal() or int(argument) < 1:
        raise ContractError(f"draft {name}:{argument}; allowed after the colon: an integer >= 1")
    return int(argument)


def _named(kind: str, argument: str) -> str:
    return f"{kind}:{argument}" if argument else kind


def _ngram(context: PoolContext, argument: str) -> Drafter:
    return NGram(_named("ngram", argument), _integer("ngram", argument, 3))


def _suffix(context: PoolContext, argument: str) -> Drafter:
    return Suffix(_named("suffix", argument), _integer("suffix", argument, 32))


def _early_exit(context: PoolContext, argument: str) -> Drafter:
    total = int(context.target.model.config.get_text_config().num_hidden_layers)
    layers = _integer("early-exit", argument, max(1, total // 4))
    short = HFCausalLM.of(truncate(context.target.model, layers), context.backend)
    return ModelDrafter(f"early-exit:{layers}", short, context.backend)


def _model(context: PoolContext, argument: str) -> Drafter:
    if not argument:
        raise ContractError("draft model: needs a name after the colon, a preset, hub id or folder")
    target = context.target
    loaded = load(argument, dtype=target.dtype, device=target.device)
    return from_loaded(context, attrs.evolve(loaded, name=argument))


def _trained(context: PoolContext, argument: str) -> Drafter:
    from flashspec.hf.heads.loading import shipped

    return shipped(context, argument)


FACTORIES = (_ngram, _suffix, _early_exit, _model, _trained)
BUILT_IN: Mapping[str, Factory] = dict(zip(BUILT_IN_DRAFTS, FACTORIES, strict=True))


def drafter(context: PoolContext, spec: str | Loaded) -> Drafter:
    """The drafter that ``spec`` names, or that of a loaded model.

    Raises:
        UnknownName: no such kind; the known ones are listed.
        BackendUnavailable: a factory that cannot be loaded; the message has the reason.
        ContractError: an argument that the kind does not take.
        CapabilityError: a draft model whose vocabulary is not the target's.
        ModelError: weights that cannot be had.
    """
    if isinstance(spec, Loaded):
        return shorten(from_loaded(context, spec), context.draft_max)
    kind, argument = check_spec(spec)
    factory = BUILT_IN.get(kind) or registry.load(registry.entries(registry.DRAFTERS).get(kind, kind))
    return shorten(factory(context, argument), context.draft_max)


def from_loaded(context: PoolContext, loaded: Loaded) -> Drafter:
    """The draft of a model that is there already.

    Raises:
        CapabilityError: its vocabulary is not the target's.
    """
    lm = HFCausalLM.of(loaded.model, context.backend)
    check_vocab(context.target.tokenizer, loaded.tokenizer, context.lm.vocab, lm.vocab, loaded.name)
    return ModelDrafter(f"model:{loaded.name}", lm, context.backend)


def shorten(made: Any, draft_max: int) -> Drafter:
    """The drafter with no length above ``draft_max``, which becomes its longest where it has longer ones."""
    if not attrs.has(type(made)):
        raise ContractError(
            f"drafter {made.name} is a {type(made).__name__}; allowed: an attrs class, to limit its lengths"
        )
    lengths = tuple(n for n in made.lengths if n <= draft_max)
    if draft_max not in lengths and any(n > draft_max for n in made.lengths):
        lengths = (*lengths, draft_max)
    shortened: Drafter = attrs.evolve(made, lengths=lengths)
    return shortened


def pool(context: PoolContext, specs: Sequence[str | Loaded]) -> tuple[Drafter, ...]:
    """The drafters of ``specs``, in order.

    Raises:
        ContractError: two drafts of one name, or ``draft_max`` below 1.
    """
    if context.draft_max < 1:
        raise ContractError(
            f"draft_max is {context.draft_max}; allowed: an integer >= 1; to decode plainly name no draft"
        )
    drafters = tuple(drafter(context, spec) for spec in specs)
    names = [d.name for d in drafters]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ContractError(f"draft {twice[0]} is named twice; name each draft once")
    return drafters
