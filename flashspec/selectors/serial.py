"""States to JSON and back, bit for bit: with the schema version, the selector's options and the arms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.types import Arms, Selector, State

SCHEMA = 1


def to_json(selector: Selector, state: State) -> str:
    """One line of JSON; numbers are written in full, so that :func:`from_json` gives the same bits."""
    arrays = {
        field.name: {"dtype": value.dtype.name, "values": value.tolist()}
        for field in attrs.fields(type(state))
        if isinstance(value := getattr(state, field.name), np.ndarray)
    }
    return json.dumps({**_identity(selector, state.arms), "arrays": arrays}, allow_nan=False)


def from_json(selector: Selector, arms: Arms, text: str) -> State:
    """The state that :func:`to_json` wrote for the same selector, options and arms.

    Raises:
        ContractError: not such a text; another schema, selector, set of options or set of arms;
            arrays that do not fit. Nothing is converted: start again with ``selector.init(arms)``.
    """
    advice = "start again with selector.init(arms), or restore with what it was saved with"
    try:
        saved = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContractError(f"selector state is not JSON ({error}); cut short? {advice}") from error
    expected = _identity(selector, arms)
    for name, value in expected.items():
        given = saved.get(name) if isinstance(saved, dict) else None
        if given != value:
            raise ContractError(f"selector state has {name} {given}; allowed here: {value}; {advice}")
    fresh = selector.init(arms)
    try:
        return attrs.evolve(fresh, **_arrays(fresh, saved["arrays"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"selector state has arrays that do not fit ({error}); {advice}") from error


def _identity(selector: Selector, arms: Arms) -> dict[str, Any]:
    places = [[int(d), int(g)] for d, g in zip(arms.draft, arms.length, strict=True)]
    parts = {
        "schema": SCHEMA,
        "selector": selector.name,
        "config": dict(selector.config),
        "arms": {"drafts": arms.drafts, "places": places, "tier": arms.tier},
    }
    plain: dict[str, Any] = json.loads(json.dumps(parts))
    return plain


def _arrays(fresh: State, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by field, each with the dtype of a fresh state and its last dimensions."""
    known = {f.name: getattr(fresh, f.name) for f in attrs.fields(type(fresh)) if f.name != "arms"}
    if set(saved) != set(known):
        raise ValueError(f"fields {sorted(saved)}; allowed: {sorted(known)}")
    arrays = {}
    for name, model in known.items():
        array = np.array(saved[name]["values"], saved[name]["dtype"])
        if array.dtype != model.dtype or array.shape[array.ndim - model.ndim :] != model.shape:
            raise ValueError(f"{name} is {array.dtype} {array.shape}; allowed: {model.dtype} {model.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has numbers that are not finite")
        arrays[name] = array
    return arrays
