"""The surface that other people's engines build on: its version, and the route for hosts with NumPy arrays.

What belongs to it: the values and the protocol of ``flashspec.contract``, this module, the functions of
``flashspec.integrations.tensors`` and the operators of ``flashspec.integrations.ops`` and ``flashspec_triton.ops``.

The version is (major, minor). A minor version adds: names, optional parameters behind the others, methods,
proposals, status bits. A major version may take away or change what there is, and the numbers that a stream gives.
Within a major version a call with the same arguments has the same decisions away from rounding ties, log-probabilities
may change in their last digits, and what is undefined may become an error.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import (
    Backend,
    Domain,
    OneHot,
    Padded,
    Proposal,
    Sample,
    Sampling,
    Status,
    Stream,
)
from flashspec.errors import CapabilityError, ContractError

VERSION = (1, 0)
"""Of the surface, not of the package."""


def require(major: int, minor: int = 0) -> None:
    """Refuse to run on a surface that an engine was not written for.

    Raises:
        CapabilityError: another major version, or an older minor one.
    """
    if major != VERSION[0] or minor > VERSION[1]:
        raise CapabilityError(
            f"version {major}.{minor} of the embedding surface was asked for and this is {VERSION[0]}.{VERSION[1]}; "
            f"allowed: {VERSION[0]}.0 to {VERSION[0]}.{VERSION[1]}; install a FlashSpec that has it"
        )


@attrs.frozen
class Emitted:
    """What one round of one request emits, as plain numbers."""

    tokens: tuple[int, ...]
    """The accepted drafts and one more token; without that one if the next row has no law."""
    accepted: int
    """How many of them are drafts."""
    status: Status
    """What was wrong with the rows."""
    logprobs: tuple[float, ...]
    """Of each token under the target's law; 0 if greedy."""


def sample_row(
    backend: Backend, logits: npt.NDArray[Any], sampling: Sampling, stream: Stream, index: int = 0
) -> tuple[int, Sample]:
    """Draw draft number ``index`` of a round from ``logits [V]``, and the record that :func:`verify_rows` takes.

    ``sampling`` and ``stream`` are of one request; the stream is the one of the round. The token is -1 where the row
    has no law.

    Raises:
        ContractError: an array that is not C-contiguous, or of another form.
    """
    row = _rows(logits, 1, "logits")[None]
    found = backend.sample(_given(backend, row), sampling, stream.draw(Domain.DRAFT, index))
    return int(backend.to_numpy(found.tokens)[0]), found


def verify_rows(
    backend: Backend,
    target: npt.NDArray[Any],
    drafts: tuple[int, ...] | list[int] | npt.NDArray[np.int64],
    sampling: Sampling,
    stream: Stream,
    *,
    drawn: tuple[Sample, ...] | list[Sample] = (),
    method: str = "token",
) -> Emitted:
    """Verify one request's drafts from its own rows of raw logits ``target [K + 1, V]``.

    Args:
        backend: any; ``numpy`` reads the array where it lies, another one gets a copy.
        target: float16, float32 or float64, C-contiguous, so that no host copies it without knowing.
        drafts: ``K`` token ids; -1 ends them.
        sampling: of one request.
        stream: of the round: seed, and as position the tokens committed before it, prompt included.
        drawn: what :func:`sample_row` returned for each draft; empty for drafts that were not sampled.
        method: as for ``Backend.verify``.

    Raises:
        ContractError: an array that is not C-contiguous or of another shape; another number of records than drafts.
        CapabilityError: what the backend does not declare.
    """
    rows = _rows(target, 2, "target")
    ids = np.asarray(drafts, np.int64).reshape(-1)
    if len(rows) != len(ids) + 1:
        raise ContractError(
            f"target has {len(rows)} rows for {len(ids)} drafts; allowed: one row a draft and one for the next token"
        )
    if drawn and len(drawn) != len(ids):
        raise ContractError(
            f"{len(drawn)} records of {len(ids)} drafts; allowed: one a draft, or none for copied drafts"
        )
    proposal: Proposal = backend.concat([s.proposal for s in drawn]) if drawn else OneHot()
    found = backend.verify(
        _given(backend, rows[None]),
        backend.asarray(ids[None], "int64"),
        proposal,
        Padded(),
        sampling,
        stream,
        method,
    )
    count, accepted, status = (
        int(backend.to_numpy(x)[0]) for x in (found.num_emitted, found.num_accepted, found.status)
    )
    tokens, logs = (backend.to_numpy(x)[0, :count].tolist() for x in (found.tokens, found.logprobs))
    return Emitted(tuple(tokens), accepted, Status(status), tuple(logs))


def _rows(array: Any, axes: int, name: str) -> npt.NDArray[Any]:
    """A host array as it is.

    Raises:
        ContractError: no NumPy array of floats with so many axes, or not C-contiguous.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f" or array.ndim != axes:
        shape = array.shape if isinstance(array, np.ndarray) else type(array).__name__
        wanted = "[V]" if axes == 1 else "[K + 1, V]"
        kind = getattr(array, "dtype", "")
        raise ContractError(f"{name} is {shape} {kind}; allowed: a NumPy array {wanted} of floats")
    if not array.flags.c_contiguous:
        raise ContractError(
            f"{name} is not C-contiguous (strides {array.strides}); allowed: contiguous rows; slice whole rows, or "
            "copy with numpy.ascontiguousarray"
        )
    return array


def _given(backend: Backend, rows: npt.NDArray[Any]) -> Any:
    """The rows in the backend's own kind; NumPy's as they lie in memory."""
    return rows if backend.capabilities.arrays == "numpy" else backend.asarray(rows, rows.dtype.name)
