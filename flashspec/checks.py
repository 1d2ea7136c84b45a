"""Border checks that any backend can call first: shapes, dtypes, ranges, capabilities.

Arrays are asked for ``.shape`` and ``.dtype`` only, so NumPy, torch, JAX and others all pass; values
are read only in NumPy arrays, which are on the host. No check ever waits for a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashspec.contract import (
    KIND_DENSE,
    KIND_ONEHOT,
    KIND_SPARSE,
    Array,
    Capabilities,
    Dense,
    Draw,
    Layout,
    Mixed,
    OneHot,
    Padded,
    Proposal,
    Ragged,
    Sampling,
    Sparse,
    Stream,
    Uniforms,
)
from flashspec.errors import CapabilityError, ContractError

METHODS = frozenset({"greedy", "token", "block", "path"})
"""Every method of the contract; a backend declares those that it has."""

COINLESS = frozenset({"greedy", "path"})
"""Methods that flip no coins: ``Uniforms.accept`` may be None."""

_FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
_WORD = 32


def dtype_name(array: Array) -> str:
    """The bare dtype name, such as ``float32`` or ``int64``, whatever the library's prefix."""
    return str(array.dtype).rpartition(".")[2]


def _shape_of(array: Array, name: str) -> tuple[int, ...]:
    try:
        return tuple(array.shape)
    except AttributeError:
        raise ContractError(f"{name} is {type(array).__name__}; allowed: an array with a shape") from None


def _shape(array: Array, allowed: tuple[int, ...], name: str, meaning: str) -> None:
    given = _shape_of(array, name)
    if given != allowed:
        raise ContractError(f"{name} has shape {given}; allowed: {allowed} = {meaning}")


def _rank(array: Array, rank: int, name: str, meaning: str) -> None:
    given = _shape_of(array, name)
    if len(given) != rank:
        raise ContractError(f"{name} has shape {given}; allowed: {rank} axes, {meaning}")


def _integers(array: Array, name: str) -> None:
    if "int" not in dtype_name(array):
        raise ContractError(f"{name} has dtype {dtype_name(array)}; allowed: an integer dtype")


def _declared(what: str, given: str, declared: frozenset[str]) -> None:
    # implements: CAP-1
    if given not in declared:
        listed = ", ".join(sorted(declared)) or "none"
        raise CapabilityError(f"{what} {given!r} is not declared; this backend declares: {listed}")


def _method(method: str, declared: frozenset[str]) -> None:
    # implements: CAP-1
    if method not in METHODS:
        raise CapabilityError(
            f"method {method!r} is unknown; allowed: {', '.join(sorted(METHODS))}; "
            f"this backend declares: {', '.join(sorted(declared)) or 'none'}"
        )
    _declared("method", method, declared)


def _within(array: Array, low: int, high: int, name: str) -> None:
    """Refuse host integers outside ``[low, high]``; device arrays are not read."""
    if isinstance(array, np.ndarray) and array.size and (int(array.min()) < low or int(array.max()) > high):
        raise ContractError(f"{name} holds values from {array.min()} to {array.max()}; allowed: {low} to {high}")


def check_sample(
    capabilities: Capabilities,
    logits: Array,
    sampling: Sampling,
    randomness: Draw | Uniforms,
    device: str = "cpu",
) -> None:
    """Check the arguments of ``Backend.sample``; ``device`` is the device type of ``logits``.

    Raises:
        ContractError: shapes, dtypes or host values that do not fit together.
        CapabilityError: a dtype, filter or device that is not declared.
    """
    # implements: CAP-2
    _declared("device", device, capabilities.devices)
    _rank(logits, 2, "logits", "[B, V]")
    _logits(capabilities, logits, "logits")
    batch, vocab = (int(n) for n in logits.shape)
    _sampling(capabilities, sampling, batch, batch, vocab, "sampling")
    if isinstance(randomness, Draw):
        _stream(randomness.stream, batch)
    elif isinstance(randomness, Uniforms):
        _shape(randomness.sampling, (batch,), "randomness.sampling", "[B]")
        _integers(randomness.sampling, "randomness.sampling")
    else:
        raise ContractError(
            f"randomness is {type(randomness).__name__}; allowed: Draw or Uniforms. Stream.draw(domain) makes a Draw"
        )


def check_verify(
    capabilities: Capabilities,
    target_logits: Array,
    draft_tokens: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    randomness: Stream | Uniforms,
    method: str = "token",
    device: str = "cpu",
) -> None:
    """Check the arguments of ``Backend.verify``; ``device`` is the device type of ``target_logits``.

    Raises:
        ContractError: shapes, dtypes or host values that do not fit together.
        CapabilityError: a method, dtype, filter, proposal or device that is not declared.
    """
    # implements: CAP-2
    _method(method, capabilities.methods)
    _declared("device", device, capabilities.devices)
    _rank(draft_tokens, 2, "draft_tokens", "[B, K]")
    _integers(draft_tokens, "draft_tokens")
    batch, longest = (int(n) for n in draft_tokens.shape)
    rows, vocab = _layout(target_logits, layout, batch, longest)
    _logits(capabilities, target_logits, "target_logits")
    _sampling(capabilities, sampling, batch, rows, vocab, "sampling")
    _proposal(capabilities, proposal, batch, longest, vocab)
    _randomness(randomness, batch, longest, method)
    if method == "greedy":
        _within_greedy(sampling)


def _logits(capabilities: Capabilities, logits: Array, name: str) -> None:
    _declared(f"dtype of {name}", dtype_name(logits), capabilities.dtypes)
    if logits.shape[-1] < 1:
        raise ContractError(f"{name} has shape {tuple(logits.shape)}; allowed: at least one token, V >= 1")


def _layout(logits: Array, layout: Layout, batch: int, longest: int) -> tuple[int, int]:
    """Check the target rows; return their number and the vocabulary size."""
    if isinstance(layout, Padded):
        _rank(logits, 3, "target_logits", "[B, K + 1, V] for Padded; use Ragged for [R, V]")
        vocab = int(logits.shape[2])
        _shape(logits, (batch, longest + 1, vocab), "target_logits", "[B, K + 1, V] of draft_tokens [B, K]")
        return batch * (longest + 1), vocab
    if not isinstance(layout, Ragged):
        raise ContractError(f"layout is {type(layout).__name__}; allowed: Padded or Ragged")
    _rank(logits, 2, "target_logits", "[R, V] for Ragged; use Padded for [B, K + 1, V]")
    rows, vocab = (int(n) for n in logits.shape)
    _shape(layout.cu_rows, (batch + 1,), "cu_rows", "[B + 1]")
    _integers(layout.cu_rows, "cu_rows")
    if isinstance(layout.cu_rows, np.ndarray):
        _cu_rows(layout.cu_rows.astype(np.int64), rows, longest)
    return rows, vocab


def _cu_rows(cu_rows: Any, rows: int, longest: int) -> None:
    if cu_rows[0] != 0 or cu_rows[-1] != rows:
        raise ContractError(f"cu_rows runs from {cu_rows[0]} to {cu_rows[-1]}; allowed: 0 to R = {rows}")
    _within(np.diff(cu_rows), 0, longest + 1, "the step of cu_rows (rows of one request, at most K + 1)")


def _sampling(capabilities: Capabilities, sampling: Sampling, batch: int, rows: int, vocab: int, name: str) -> None:
    if sampling.batch != batch:
        raise ContractError(f"{name} is for {sampling.batch} requests; allowed: B = {batch}")
    for filter_name, off in _FILTERS.items():
        values = getattr(sampling, filter_name)
        if isinstance(values, np.ndarray) and bool((values != off).any()):
            _declared("filter", filter_name, capabilities.filters)
    if sampling.allowed is not None:
        _declared("filter", "allowed", capabilities.filters)
        words = -(-vocab // _WORD)
        _shape(sampling.allowed, (rows, words), f"{name}.allowed", "[rows, ceil(V / 32)]")
        if dtype_name(sampling.allowed) != "int32":
            raise ContractError(f"{name}.allowed has dtype {dtype_name(sampling.allowed)}; allowed: int32")


def _proposal(capabilities: Capabilities, proposal: Proposal, batch: int, longest: int, vocab: int) -> None:
    if isinstance(proposal, OneHot):
        _declared("proposal", "onehot", capabilities.proposals)
    elif isinstance(proposal, Sparse):
        _sparse(capabilities, proposal, batch, longest)
    elif isinstance(proposal, Dense):
        _dense(capabilities, proposal, batch, longest, vocab)
    elif isinstance(proposal, Mixed):
        _mixed(capabilities, proposal, batch, longest, vocab)
    else:
        raise ContractError(f"proposal is {type(proposal).__name__}; allowed: OneHot, Sparse, Dense or Mixed")


def _sparse(capabilities: Capabilities, sparse: Sparse, batch: int, longest: int) -> None:
    _declared("proposal", "sparse", capabilities.proposals)
    _rank(sparse.ids, 3, "proposal.ids", "[B, K, S]")
    _integers(sparse.ids, "proposal.ids")
    expected = (batch, longest, int(sparse.ids.shape[2]))
    _shape(sparse.ids, expected, "proposal.ids", "[B, K, S] of draft_tokens [B, K]")
    _shape(sparse.logprobs, expected, "proposal.logprobs", "[B, K, S], the shape of proposal.ids")
    if "float" not in dtype_name(sparse.logprobs):
        raise ContractError(f"proposal.logprobs has dtype {dtype_name(sparse.logprobs)}; allowed: a float dtype")


def _dense(capabilities: Capabilities, dense: Dense, batch: int, longest: int, vocab: int) -> None:
    _declared("proposal", "dense", capabilities.proposals)
    _shape(dense.logits, (batch, longest, vocab), "proposal.logits", "[B, K, V] of the call")
    _declared("dtype of proposal.logits", dtype_name(dense.logits), capabilities.dtypes)
    _sampling(capabilities, dense.sampling, batch, batch * longest, vocab, "proposal.sampling")
    if dense.stats is not None:
        for name in ("max", "mass", "cut_logit", "cut_id"):
            _shape(getattr(dense.stats, name), (batch, longest), f"proposal.stats.{name}", "[B, K]")


def _mixed(capabilities: Capabilities, mixed: Mixed, batch: int, longest: int, vocab: int) -> None:
    if len(capabilities.proposals) < 2:
        _declared("proposal", "mixed", capabilities.proposals)
    _shape(mixed.kind, (batch,), "proposal.kind", "[B]")
    _integers(mixed.kind, "proposal.kind")
    _within(mixed.kind, KIND_ONEHOT, KIND_DENSE, "proposal.kind")
    if mixed.sparse is not None:
        _sparse(capabilities, mixed.sparse, batch, longest)
    if mixed.dense is not None:
        _dense(capabilities, mixed.dense, batch, longest, vocab)
    if isinstance(mixed.kind, np.ndarray):
        tables = {KIND_SPARSE: ("sparse", mixed.sparse), KIND_DENSE: ("dense", mixed.dense)}
        for kind, (name, table) in tables.items():
            if table is None and bool((mixed.kind == kind).any()):
                raise ContractError(f"proposal.kind names {name} requests but proposal.{name} is None; give it")


def _randomness(randomness: Stream | Uniforms, batch: int, longest: int, method: str) -> None:
    if isinstance(randomness, Stream):
        _stream(randomness, batch)
        return
    if not isinstance(randomness, Uniforms):
        raise ContractError(f"randomness is {type(randomness).__name__}; allowed: Stream or Uniforms")
    _shape(randomness.sampling, (batch, longest + 1), "randomness.sampling", "[B, K + 1]")
    _integers(randomness.sampling, "randomness.sampling")
    if randomness.accept is not None:
        _shape(randomness.accept, (batch, longest), "randomness.accept", "[B, K]")
        _integers(randomness.accept, "randomness.accept")
        _within(randomness.accept, 0, 2**32 - 1, "randomness.accept")
    elif longest and method not in COINLESS:
        raise ContractError(
            f"randomness.accept is None for method {method!r}; allowed: uint32 coins [B, K] = {(batch, longest)}; "
            f"None is allowed for {', '.join(sorted(COINLESS))}"
        )


def _stream(stream: Stream, batch: int) -> None:
    for name in ("seed", "position", "sequence"):
        values = getattr(stream, name)
        _shape(values, (batch,), f"randomness.{name}", "[B]")
        _integers(values, f"randomness.{name}")
        if name != "seed":
            _within(values, 0, 2**32 - 1, f"randomness.{name}")


def _within_greedy(sampling: Sampling) -> None:
    t = sampling.temperature
    if isinstance(t, np.ndarray) and bool((t != 0).any()):
        raise ContractError(
            f"method 'greedy' with temperature {t[t != 0][0]}; allowed: 0 for every request. "
            "Use method 'token', which judges the requests of temperature 0 greedily"
        )
