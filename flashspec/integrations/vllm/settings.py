"""What the environment switches on: it reaches every process of an engine, whoever starts them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from flashspec.drafts.spec import DEFAULT_DRAFTS
from flashspec.errors import ContractError
from flashspec.selectors import DEFAULT

PARTS = ("selftest", "verifier")
"""Parts that the plugin installs; the pool is named in ``--speculative-config``."""
NAMES = ("FLASHSPEC_VLLM", "FLASHSPEC_VLLM_BACKEND", "FLASHSPEC_VLLM_DRAFTS", "FLASHSPEC_VLLM_SELECTOR")


def _split(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@attrs.frozen
class Settings:
    """Values of the environment.

    Raises:
        ContractError: a part that does not exist.
    """

    parts: tuple[str, ...] = ("selftest",)
    """``FLASHSPEC_VLLM``: some of ``selftest``, ``verifier``, separated by commas; ``none`` for neither."""
    backend: str = ""
    """``FLASHSPEC_VLLM_BACKEND``: a name of the registry; empty takes the best one for the engine's device."""
    drafts: tuple[str, ...] = DEFAULT_DRAFTS
    """``FLASHSPEC_VLLM_DRAFTS``: ``ngram``, ``suffix``, ``history``, separated by commas."""
    selector: str = DEFAULT
    """``FLASHSPEC_VLLM_SELECTOR``: as ``--selector`` of the commands."""

    def __attrs_post_init__(self) -> None:
        strange = [part for part in self.parts if part not in PARTS]
        if strange:
            raise ContractError(f"FLASHSPEC_VLLM names {strange[0]!r}; allowed: {', '.join(PARTS)}, or none")

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """The settings of an environment such as ``os.environ``.

        Raises:
            ContractError: as the class; a name that begins with ``FLASHSPEC_VLLM`` and is none of :data:`NAMES`.
        """
        strange = [name for name in environment if name.startswith("FLASHSPEC_VLLM") and name not in NAMES]
        if strange:
            raise ContractError(f"{strange[0]} is set; allowed: {', '.join(NAMES)}")
        given = {name: environment[name] for name in NAMES if environment.get(name)}
        values: dict[str, object] = {}
        if "FLASHSPEC_VLLM" in given:
            values["parts"] = () if given["FLASHSPEC_VLLM"] == "none" else _split(given["FLASHSPEC_VLLM"])
        if "FLASHSPEC_VLLM_DRAFTS" in given:
            values["drafts"] = _split(given["FLASHSPEC_VLLM_DRAFTS"])
        if "FLASHSPEC_VLLM_BACKEND" in given:
            values["backend"] = given["FLASHSPEC_VLLM_BACKEND"]
        if "FLASHSPEC_VLLM_SELECTOR" in given:
            values["selector"] = given["FLASHSPEC_VLLM_SELECTOR"]
        return cls(**values)  # type: ignore[arg-type]  # each value has its field's type
