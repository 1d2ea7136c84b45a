"""A backend seen through checks of form: what is wrong with an answer is said where it comes back.

Types, shapes, dtypes and devices of results are required, inputs must be unchanged. Without this a
result of the wrong shape would surface as some error of the test that used it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Backend, Capabilities, Dense, Sample, Verdict
from flashspec.errors import CapabilityError

VERIFY = ("target_logits", "draft_tokens", "proposal", "layout", "sampling", "randomness", "method")
SAMPLE = ("logits", "sampling", "randomness")
WRONG_TYPE, WRONG_SHAPE, WRONG_DTYPE, WRONG_DEVICE = "wrong type", "wrong shape", "wrong dtype", "wrong device"
CHANGED_INPUT = "changed input"
INTEGERS, FLOATS = "iu", "f"


class Misbehaviour(AssertionError):
    """A result of the wrong form, or an input that was changed; ``kind`` is the name of the fault."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@attrs.frozen(eq=False)
class Guard:
    """Passes every call on to ``inner`` and checks the form of what comes back."""

    inner: Backend
    withheld: frozenset[str] = frozenset()
    """Capabilities (``method:block``) that the spec version of the run does not know: hidden and refused."""

    @property
    def name(self) -> str:
        """The backend's own name."""
        return self.inner.name

    @property
    def capabilities(self) -> Capabilities:
        """What the backend declares, without what is withheld."""
        declared = self.inner.capabilities
        if not self.withheld or not _is(declared, Capabilities):
            return declared
        return attrs.evolve(declared, methods=frozenset(m for m in declared.methods if not self._withholds(m)))

    def _withholds(self, method: str) -> bool:
        return f"method:{method}" in self.withheld

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Any:
        """The backend's own array."""
        return self.inner.asarray(values, dtype, device)

    def to_numpy(self, array: Any) -> npt.NDArray[Any]:
        """A host array."""
        found: object = self.inner.to_numpy(array)
        return np.asarray(_typed("to_numpy", found, np.ndarray))

    def sample(self, *arguments: Any, **named: Any) -> Sample:
        """A sample of the right form."""
        given = {**dict(zip(SAMPLE, arguments, strict=False)), **named}
        before = self._prints(given)
        found: object = self.inner.sample(*arguments, **named)
        self._unchanged("sample", before, given)
        sample: Sample = _typed("sample", found, Sample)
        _typed("sample", sample.proposal, Dense)
        shape = np.shape(given["logits"])
        if len(shape) == 2:
            for field, kinds in (("tokens", INTEGERS), ("status", INTEGERS), ("logprobs", FLOATS)):
                self._formed(f"sample {field}", getattr(sample, field), given["logits"], shape[:1], kinds)
            logits = sample.proposal.logits
            self._formed("sample proposal.logits", logits, given["logits"], (shape[0], 1, shape[1]), FLOATS)
        return sample

    def verify(self, *arguments: Any, **named: Any) -> Verdict:
        """A verdict of the right form."""
        given = {**dict(zip(VERIFY, arguments, strict=False)), **named}
        if self._withholds(str(given.get("method", ""))):
            raise CapabilityError(f"method {given['method']!r} is newer than the spec version of this run")
        before = self._prints(given)
        found: object = self.inner.verify(*arguments, **named)
        self._unchanged("verify", before, given)
        verdict: Verdict = _typed("verify", found, Verdict)
        shape = np.shape(given["draft_tokens"])
        if len(shape) == 2:
            one, two = shape[:1], (shape[0], shape[1] + 1)
            for field, kinds in (("num_accepted", INTEGERS), ("num_emitted", INTEGERS), ("status", INTEGERS)):
                self._formed(f"verify {field}", getattr(verdict, field), given["target_logits"], one, kinds)
            for field, kinds in (("tokens", INTEGERS), ("logprobs", FLOATS)):
                self._formed(f"verify {field}", getattr(verdict, field), given["target_logits"], two, kinds)
        return verdict

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Joined proposals."""
        found: object = self.inner.concat(proposals)
        joined: Dense = _typed("concat", found, Dense)
        return joined

    def _prints(self, given: dict[str, Any]) -> list[bytes]:
        own = type(next(iter(given.values()), None))
        carriers = (np.ndarray,) if own.__module__ == "builtins" else (np.ndarray, own)
        return [
            hashlib.blake2b(np.ascontiguousarray(self._host(a)).tobytes()).digest()
            for value in given.values()
            for a in arrays(value)
            if isinstance(a, carriers)
        ]

    def _host(self, array: Any) -> npt.NDArray[Any]:
        return array if isinstance(array, np.ndarray) else self.inner.to_numpy(array)

    def _unchanged(self, call: str, before: list[bytes], given: dict[str, Any]) -> None:
        if self._prints(given) != before:
            raise Misbehaviour(CHANGED_INPUT, f"{call} changed an array that it was given")

    def _formed(self, what: str, array: object, logits: Any, shape: tuple[int, ...], kinds: str) -> None:
        _typed(what, array, type(logits))
        host = self.inner.to_numpy(array)
        if host.shape != shape:
            raise Misbehaviour(WRONG_SHAPE, f"{what} has shape {host.shape}; allowed: {shape}")
        if host.dtype.kind not in kinds:
            allowed = "an integer dtype" if kinds == INTEGERS else "a floating-point dtype"
            raise Misbehaviour(WRONG_DTYPE, f"{what} has dtype {host.dtype}; allowed: {allowed}")
        # Array libraries that know devices agree on this attribute; others have one device.
        here, there = str(getattr(array, "device", "")), str(getattr(logits, "device", ""))
        if here != there:
            raise Misbehaviour(WRONG_DEVICE, f"{what} is on {here}; allowed: the device of the logits, {there}")


def arrays(value: Any) -> Iterator[Any]:
    """What a value of the contract holds besides names and numbers, in the order of its fields."""
    if attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from arrays(getattr(value, field.name))
    elif value is not None and not isinstance(value, str | int):
        yield value


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind)


def _typed(what: str, value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise Misbehaviour(WRONG_TYPE, f"{what} gave a {type(value).__name__}; allowed: {kind.__name__}")
    return value
