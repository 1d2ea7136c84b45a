"""States to JSON or safetensors and back, bit for bit: with the schema version, the selector's options and the arms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import ContractError, FlashSpecError
from flashspec.selectors.types import Arms, Selector, State

SCHEMA = 1
ADVICE = "start again with selector.init(arms), or restore with what it was saved with"
KEY = "flashspec_selector"
"""The entry of a safetensors file's metadata that holds schema, selector, options and arms as JSON."""


def to_json(selector: Selector, state: State) -> str:
    """One line of JSON; numbers are written in full, so that :func:`from_json` gives the same bits."""
    written = {name: {"dtype": x.dtype.name, "values": x.tolist()} for name, x in arrays_of(state).items()}
    return json.dumps({**identity(selector, state.arms), "arrays": written}, allow_nan=False)


def from_json(selector: Selector, arms: Arms, text: str) -> State:
    """The state that :func:`to_json` wrote for the same selector, options and arms.

    Raises:
        ContractError: not such a text; another schema, selector, set of options or set of arms;
            arrays that do not fit. Nothing is converted: start again with ``selector.init(arms)``,
            or restore with the old arms and :func:`flashspec.selectors.carry` to the new ones.
    """
    try:
        saved = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError(f"selector state is not JSON ({error}); cut short? {ADVICE}") from error
    check_identity(saved, selector, arms)
    fresh = selector.init(arms)
    kinds = {x.dtype.name for x in arrays_of(fresh).values()}
    try:
        strange = [part["dtype"] for part in saved["arrays"].values() if part["dtype"] not in kinds]
        if strange:
            raise ValueError(f"dtype {strange[0]}; allowed: {', '.join(sorted(kinds))}")
        found = {name: np.array(part["values"], part["dtype"]) for name, part in saved["arrays"].items()}
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ContractError(f"selector state has arrays that do not fit ({error}); {ADVICE}") from error
    return restored(fresh, found)


def to_safetensors(selector: Selector, state: State, file: str | Path) -> None:
    """Write the state to a safetensors file: its arrays, and the rest as metadata.

    Raises:
        FlashSpecError: safetensors is not installed.
        OSError: the file cannot be written.
    """
    from_numpy = _safetensors()[0]
    found = {name: np.ascontiguousarray(x).reshape(x.shape) for name, x in arrays_of(state).items()}
    data = from_numpy(found, {KEY: json.dumps(identity(selector, state.arms))})
    Path(file).write_bytes(data)


def from_safetensors(selector: Selector, arms: Arms, file: str | Path) -> State:
    """The state that :func:`to_safetensors` wrote for the same selector, options and arms.

    Raises:
        FlashSpecError: safetensors is not installed.
        ContractError: as :func:`from_json`, and a file that cannot be read or was cut short.
    """
    _, opened, unreadable = _safetensors()
    try:
        with opened(str(file), framework="numpy") as reader:
            notes = (reader.metadata() or {}).get(KEY)
            found = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118  # no mapping
    except (OSError, unreadable) as error:
        raise ContractError(f"{file} is no readable safetensors file ({error}); cut short? {ADVICE}") from error
    if notes is None:
        raise ContractError(f"{file} has no entry {KEY} in its metadata, so it holds no selector state; {ADVICE}")
    check_identity(json.loads(notes), selector, arms)
    return restored(selector.init(arms), found)


def _safetensors() -> tuple[Any, Any, type[Exception]]:
    """What writes, what reads, and what a broken file raises."""
    try:
        from safetensors import SafetensorError, safe_open
        from safetensors.numpy import save
    except ImportError as error:
        raise FlashSpecError(
            f"safetensors files need safetensors ({error}); install FlashSpec with its hf extra, or use to_json"
        ) from error
    return save, safe_open, SafetensorError


def arrays_of(state: State) -> dict[str, npt.NDArray[Any]]:
    """The state's arrays by field.

    Raises:
        ContractError: an array of another library than NumPy.
    """
    found = {f.name: getattr(state, f.name) for f in attrs.fields(type(state)) if f.name != "arms"}
    for name, value in found.items():
        if not isinstance(value, np.ndarray):
            kind = f"{type(value).__module__}.{type(value).__name__}"
            raise ContractError(
                f"{name} of the state is {kind}; allowed: a NumPy array, move the state to the host first"
            )
    return found


def identity(selector: Selector, arms: Arms) -> dict[str, Any]:
    """What a saved state has to share with the place where it is restored."""
    places = [[int(d), int(g)] for d, g in zip(arms.draft, arms.length, strict=True)]
    parts = {
        "schema": SCHEMA,
        "selector": selector.name,
        "config": dict(selector.config),
        "arms": {"drafts": arms.drafts, "places": places, "tier": arms.tier},
    }
    plain: dict[str, Any] = json.loads(json.dumps(parts))
    return plain


def check_identity(saved: Any, selector: Selector, arms: Arms) -> None:
    """Refuse a state of another schema, selector, set of options or set of arms."""
    for name, value in identity(selector, arms).items():
        given = saved.get(name) if isinstance(saved, dict) else None
        if given != value:
            raise ContractError(f"selector state has {name} {given}; allowed here: {value}; {ADVICE}")


def restored(fresh: State, saved: Mapping[str, npt.NDArray[Any]]) -> State:
    """``fresh`` with the saved arrays, each of the dtype of a fresh state's and with its last dimensions."""
    known = arrays_of(fresh)
    problem = None if set(saved) == set(known) else f"fields {sorted(saved)}; allowed: {sorted(known)}"
    for name, model in known.items() if problem is None else ():
        array = saved[name]
        if array.dtype != model.dtype or array.shape[max(0, array.ndim - model.ndim) :] != model.shape:
            problem = f"{name} is {array.dtype} {array.shape}; allowed: {model.dtype} {model.shape}"
        elif not np.isfinite(array).all():
            problem = f"{name} has numbers that are not finite"
    if problem is not None:
        raise ContractError(f"selector state has arrays that do not fit ({problem}); {ADVICE}")
    return attrs.evolve(fresh, **saved)
