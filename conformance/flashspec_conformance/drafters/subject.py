"""The drafter under test, built anew over the toy target as often as a check likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from flashspec import registry
from flashspec.decoding.toy import TableLM
from flashspec.drafts import Drafter, ModelDrafter, NGram, Suffix
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError, FlashSpecError, unknown_name
from flashspec_conformance.drafters.context import VOCAB, ToyContext, toy

FREE, SAMPLED = "free", "sampled"
"""Proposes before the selection, for nothing and without chance; or when it is chosen. ``Drafter.free`` declares it."""

Factory = Callable[[ToyContext, str], Any]


@attrs.frozen(eq=False)
class Subject:
    """Who builds the drafter, and which promises it makes."""

    build: Callable[[ToyContext], Drafter]
    kind: str
    equal: bool = False
    """It drafts with the target itself, so that every draft must be accepted."""

    def make(self) -> Drafter:
        """A drafter over a context of its own."""
        return self.build(toy())


def of(factory: Factory, argument: str = "", equal: bool = False) -> Subject:
    """A subject; its kind is what a first drafter declares."""

    def build(context: ToyContext) -> Drafter:
        made: Drafter = factory(context, argument)
        return made

    return Subject(build, FREE if build(toy()).free else SAMPLED, equal)


def _ngram(context: ToyContext, argument: str) -> Drafter:
    return NGram(longest=int(argument or 3))


def _suffix(context: ToyContext, argument: str) -> Drafter:
    return Suffix(longest=int(argument or 32))


def _model(context: ToyContext, argument: str) -> Drafter:
    return ModelDrafter("model", TableLM.random(VOCAB, 5, order=2), context.backend, lengths=(1, 2, 4))


def _same(context: ToyContext, argument: str) -> Drafter:
    return ModelDrafter("model:target", context.lm, context.backend, lengths=(1, 2, 4))


def _early_exit(context: ToyContext, argument: str) -> Drafter:
    raise CapabilityError("draft early-exit needs a model with layers, which the toy target is not; try model")


BUILT_IN: Mapping[str, Factory] = {"ngram": _ngram, "suffix": _suffix, "model": _model, "early-exit": _early_exit}


def load(target: str) -> Subject:
    """The drafter that ``target`` names, with ``:ARGUMENT`` behind a name.

    ``model`` drafts with another toy model, ``model:target`` with the target itself. ``module:attr`` is a factory
    ``(context, argument) -> Drafter``, or a drafter; ``module:attr:target`` says that it drafts with
    ``context.lm``, so that every draft must be accepted.

    Raises:
        UnknownName, ContractError, CapabilityError, BackendUnavailable: it cannot be had; the message says why.
    """
    if target == "model:target":
        return of(_same, equal=True)
    kind, _, argument = target.partition(":")
    known = registry.entries(registry.DRAFTERS)
    try:
        if kind in BUILT_IN:
            return of(BUILT_IN[kind], argument)
        if kind in known:
            return of(_factory(registry.load(known[kind])), argument)
        if not argument:
            raise unknown_name("drafter", target, [*BUILT_IN, *known])
        attribute, _, more = argument.partition(":")
        return of(_factory(registry.load(f"{kind}:{attribute}")), more, more == "target")
    except FlashSpecError:
        raise
    except Exception as error:  # somebody's factory may raise anything
        raise BackendUnavailable(f"{target} cannot be built: {type(error).__name__}: {error}") from error


def _factory(found: Any) -> Factory:
    """What was named, as a factory: a drafter stands for itself."""
    if isinstance(found, type) or not attrs.has(type(found)):
        if not callable(found):
            raise ContractError(f"{found!r} is no drafter; allowed: a factory (context, argument), or an attrs value")
        made: Factory = found
        return made
    return lambda context, argument: found
