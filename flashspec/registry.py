"""Finding backends, drafters and selectors by name, ours and anybody's, through entry points.

A name is looked up among installed entry points, then in the table of the checkout's own
``pyproject.toml`` (a plain checkout has no installed metadata). ``module:attr`` needs no
registration. Asked for by name, a thing loads or raises with the reason.
"""

from __future__ import annotations

import importlib
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs

from flashspec.contract import Backend
from flashspec.errors import BackendUnavailable, ContractError, unknown_name

BACKENDS = "flashspec.backends"
DRAFTERS = "flashspec.drafters"
"""``factory(context, argument) -> Drafter``; ``context`` is ``hf.pool.PoolContext``."""
PREFERENCE = ("triton", "torch", "numpy")
"""Unasked, the first of these that loads and declares the device is taken."""


@runtime_checkable
class Warmable(Protocol):
    """A backend whose kernels are compiled at their first call, and can be before. Optional for a backend."""

    def warm(self, vocab: int, dtype: str, draft_len: int, filters: bool) -> float:
        """Compile what calls with rows of ``vocab`` logits and up to ``draft_len`` drafts need; returns seconds.

        Runs on the current device of the kind that the backend declares. What is in the compiler's own cache
        is only loaded.
        """


@attrs.frozen
class Finding:
    """Whether one registered backend can be used here, and why (not)."""

    name: str
    target: str
    usable: bool
    reason: str
    devices: tuple[str, ...] = ()


def _checkout(group: str) -> dict[str, str]:
    pyproject = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if not pyproject.is_file():
        return {}
    project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
    if project.get("name") != "flashspec":
        return {}
    table: dict[str, str] = project.get("entry-points", {}).get(group, {})
    return table


def entries(group: str) -> dict[str, str]:
    """Registered names of a group and the ``module:attr`` each stands for. Imports nothing."""
    installed = {e.name: e.value for e in metadata.entry_points(group=group)}
    return dict(sorted({**_checkout(group), **installed}.items()))


def load(target: str) -> Any:
    """The object that ``module:attr`` names.

    Raises:
        ContractError: not of the form ``module:attr``.
        BackendUnavailable: the module cannot be imported or lacks the attribute.
    """
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        raise ContractError(f"{target!r} is not of the form module:attr; example: my_package:backend")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing somebody's package may raise anything
        raise BackendUnavailable(f"{target} cannot be loaded: {type(error).__name__}: {error}") from error
    return found


def get_backend(name: str) -> Backend:
    """The backend of a registered name or ``module:attr``.

    Raises:
        UnknownName: no such name; the known ones are listed.
        BackendUnavailable: it is known but cannot be loaded; the message has the reason.
        ContractError: what was loaded is not a backend.
    """
    known = entries(BACKENDS)
    if name not in known and ":" not in name:
        raise unknown_name("backend", name, list(known))
    found = load(known.get(name, name))
    if isinstance(found, type) or not isinstance(found, Backend):
        raise ContractError(
            f"{name} is {type(found).__name__}; allowed: an object with the methods of contract.Backend"
        )
    return found


def survey() -> list[Finding]:
    """Try every registered backend and say which can be used and why not."""
    findings = []
    for name, target in entries(BACKENDS).items():
        try:
            backend = get_backend(name)
        except (BackendUnavailable, ContractError) as error:
            findings.append(Finding(name, target, False, str(error)))
        else:
            devices = tuple(sorted(backend.capabilities.devices))
            findings.append(Finding(name, target, True, "loads", devices))
    return findings


def best_backend(device: str = "cpu") -> Backend:
    """The preferred usable backend for a device type; used only when none was asked for.

    Raises:
        BackendUnavailable: no registered backend declares the device; every reason is listed.
    """
    order = {name: place for place, name in enumerate(PREFERENCE)}
    findings = sorted(survey(), key=lambda f: (order.get(f.name, len(order)), f.name))
    for finding in findings:
        if finding.usable and device in finding.devices:
            return get_backend(finding.name)
    reasons = "; ".join(f"{f.name}: {f.reason}, devices {', '.join(f.devices) or 'none'}" for f in findings)
    raise BackendUnavailable(f"no backend for device {device!r} ({reasons or 'none registered'})")
