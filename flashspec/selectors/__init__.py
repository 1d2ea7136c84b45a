"""Online choice of draft and length: pure functions ``init``, ``select`` and ``update`` over frozen states.

Whatever a selector chooses, the emitted tokens follow the target's law: it decides before the draft
is drawn, from the past alone, with randomness of its own domain. See ``docs/explanation/selection.md``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flashspec import registry
from flashspec.errors import ContractError, unknown_name
from flashspec.selectors import (
    adaptive_ts,
    cht,
    d_ts,
    d_ucb,
    ema_tiers,
    exp3s,
    fixed,
    hazard_ts,
    hedge_fixed_share,
    hf_heuristic,
    kl_ucb,
    mixture,
    random,
    sw_ucb,
    thompson,
    throughput_greedy,
    tsallis_inf,
    ucb1,
)
from flashspec.selectors.carried import carry
from flashspec.selectors.known import LOOKUPS
from flashspec.selectors.serial import from_json, from_safetensors, to_json, to_safetensors
from flashspec.selectors.types import FREE, OWN, SHADOW, Arms, Info, Observation, Scored, Selector

__all__ = [
    "DEFAULT",
    "FREE",
    "GROUP",
    "OWN",
    "SHADOW",
    "Arms",
    "Info",
    "Observation",
    "Scored",
    "Selector",
    "carry",
    "from_json",
    "from_safetensors",
    "from_spec",
    "get",
    "names",
    "to_json",
    "to_safetensors",
]

GROUP = "flashspec.selectors"
DEFAULT = "cht"

_BUILTIN: dict[str, Callable[..., Selector]] = {
    "adaptive_ts": adaptive_ts.adaptive_ts,
    "cht": cht.cht,
    "d_ts": d_ts.d_ts,
    "d_ucb": d_ucb.d_ucb,
    "ema_tiers": ema_tiers.ema_tiers,
    "exp3s": exp3s.exp3s,
    "fixed": fixed.fixed,
    "hazard_ts": hazard_ts.hazard_ts,
    "hedge_fixed_share": hedge_fixed_share.hedge_fixed_share,
    "hf_heuristic": hf_heuristic.hf_heuristic,
    "kl_ucb": kl_ucb.kl_ucb,
    "mixture": mixture.mixture,
    "random": random.random,
    "sw_ucb": sw_ucb.sw_ucb,
    "thompson": thompson.thompson,
    "throughput_greedy": throughput_greedy.throughput_greedy,
    "tsallis_inf": tsallis_inf.tsallis_inf,
    "ucb1": ucb1.ucb1,
}

ONE_DRAFT = ("ema_tiers", "hf_heuristic")
"""Rules for the length of one draft, which has to be named."""


def names() -> list[str]:
    """Every name that :func:`get` knows: ours and those of the entry-point group ``flashspec.selectors``."""
    return sorted({*_BUILTIN, *registry.entries(GROUP)})


def get(name: str = DEFAULT, **config: Any) -> Selector:
    """The selector of a name, built with the options given.

    Raises:
        UnknownName: no such name; the known ones are listed.
        ContractError: an option that it does not have, or a value that it refuses.
        BackendUnavailable: a registered selector that cannot be loaded; the message has the reason.
    """
    build = _BUILTIN.get(name)
    if build is None:
        known = registry.entries(GROUP)
        if name not in known and ":" not in name:
            raise unknown_name("selector", name, names())
        build = registry.load(known.get(name, name))
    try:
        inspect.signature(build).bind(**config)
    except (TypeError, ValueError) as error:
        raise ContractError(f"selector {name} with options {config}: {error}") from error
    selector = build(**config)
    if not isinstance(selector, Selector):
        raise ContractError(f"{name} built {type(selector).__name__}; allowed: a Selector")
    return selector


def from_spec(spec: str) -> Selector:
    """The selector that a user names: a name of :func:`names`, ``fixed:DRAFT/LENGTH``, ``hf_heuristic:DRAFT``,
    ``ema_tiers:DRAFT`` or ``module:attr``.

    ``cht`` comes with what is known of lookup drafts (``known.LOOKUPS``); ``get("cht")`` starts from nothing.

    Raises:
        UnknownName, BackendUnavailable: as :func:`get`.
        ContractError: ``fixed`` without the arm that it plays, a rule for one draft without the draft.
    """
    kind, _, rest = spec.partition(":")
    if spec == "cht":
        return get("cht", known=LOOKUPS)
    if kind in ONE_DRAFT:
        if not rest:
            raise ContractError(f"selector {kind} needs a draft: {kind}:DRAFT, for instance {kind}:suffix")
        return get(kind, draft=rest)
    if kind != "fixed":
        return get(spec)
    if not rest:
        raise ContractError("selector fixed needs an arm: fixed:DRAFT/LENGTH, for instance fixed:suffix/4")
    return get("fixed", arm=rest)
