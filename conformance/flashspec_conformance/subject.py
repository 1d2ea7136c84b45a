"""The backend under test together with the device it is tested on."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array, Backend
from flashspec.errors import CapabilityError

PROPOSALS = ("onehot", "sparse", "dense")
FILTERS = ("top_k", "top_p", "min_p", "allowed")
METHODS = ("greedy", "token", "block", "path")
DTYPES = ("float16", "bfloat16", "float32", "float64")


@attrs.frozen
class Subject:
    """A backend, its registered name or ``module:attr``, and a device it declares."""

    target: str
    backend: Backend
    device: str = "cpu"

    def declares(self, item: str) -> bool:
        """Whether ``family:value`` is declared, for example ``filter:top_k``."""
        return item in self.declared()

    def declared(self) -> tuple[str, ...]:
        """Every declared capability as ``family:value``, devices left out: a run has one device."""
        c = self.backend.capabilities
        families = {"method": c.methods, "dtype": c.dtypes, "proposal": c.proposals, "filter": c.filters}
        return tuple(f"{name}:{value}" for name, values in families.items() for value in sorted(values))

    def put(self, values: npt.NDArray[Any], dtype: str) -> Array:
        """A host array as the backend's own on the device of the run."""
        return self.backend.asarray(values, dtype, self.device)

    def get(self, array: Array) -> npt.NDArray[Any]:
        """A backend's array on the host."""
        return np.asarray(self.backend.to_numpy(array))

    def values(self, family: tuple[str, ...], prefix: str) -> tuple[str, ...]:
        """The declared values of a family, in its fixed order."""
        return tuple(v for v in family if self.declares(f"{prefix}:{v}"))

    @property
    def method(self) -> str:
        """The method for tests that need only one: ``token`` where declared, ``greedy`` where there is no other."""
        return [*self.warm_methods, "greedy"][0]

    @property
    def warm_methods(self) -> tuple[str, ...]:
        """The declared methods that judge temperatures above 0."""
        return tuple(m for m in self.values(METHODS, "method") if m != "greedy")

    @property
    def dtype(self) -> str:
        """The logits dtype for tests that need only one: float32 where declared."""
        declared = self.values(DTYPES, "dtype")
        return "float32" if "float32" in declared else declared[-1]


def check_device(backend: Backend, device: str) -> None:
    """Refuse a device that the backend does not declare.

    Raises:
        CapabilityError: the device type is not declared; the declared ones are listed.
    """
    kind = device.partition(":")[0]
    declared = sorted(backend.capabilities.devices)
    if kind not in declared:
        raise CapabilityError(
            f"backend {backend.name} does not declare device {device}; declared: {', '.join(declared)}"
        )
