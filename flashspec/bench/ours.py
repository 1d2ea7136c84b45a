"""Backends as contenders: drafts come with the law they were really drawn from."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

import flashspec
from flashspec.bench.case import Case, settings
from flashspec.bench.contender import BACKEND, Prepared
from flashspec.bench.inputs import Inputs
from flashspec.contract import Backend, Dense, Domain, OneHot, Padded, Proposal, Sampling, Sparse, Stream

LISTED = 16
"""Tokens that a sparse proposal lists."""


@attrs.frozen
class Ours:
    """A backend of the contract."""

    name: str
    backend: Backend
    kind: str = BACKEND
    capturable: bool = True
    most_batch: int | None = None

    @property
    def version(self) -> str:
        """FlashSpec's own."""
        return f"flashspec {flashspec.__version__}"

    def refusal(self, case: Case, device: str) -> str | None:
        """What it does not declare."""
        can = self.backend.capabilities
        named = (("dtype", case.dtype, can.dtypes), ("device", device, can.devices))
        used = [("method", case.method, can.methods)] if case.method != "sample" else []
        used += [("proposal", case.proposal, can.proposals)]
        used += [("filter", name, can.filters) for name in settings(case.filters)]
        return next((f"does not declare {what} {x}" for what, x, have in (*named, *used) if x not in have), None)

    def prepare(self, inputs: Inputs) -> Prepared:
        """A call of the case."""
        case, device, backend = inputs.case, inputs.device, self.backend
        target, near = (self._rows(rows, inputs) for rows in (inputs.target, inputs.near))
        own, source = sampling(inputs, backend), stream(inputs, backend)
        if case.method == "sample":
            row = target[:, 0]
            return Prepared(
                lambda: backend.sample(row, own, source.draw(Domain.DRAFT)),
                lambda found: backend.to_numpy(found.tokens)[:, None],
            )
        drafts, proposal = drafted(inputs, backend, near, own, source)
        # On CUDA the host does not see that every temperature is 0, so greedy requests come as any others.
        method = "token" if case.method == "greedy" and device == "cuda" else case.method
        return Prepared(
            lambda: backend.verify(target, drafts, proposal, Padded(), own, source, method),
            lambda found: backend.to_numpy(found.tokens),
        )

    def _rows(self, rows: Any, inputs: Inputs) -> Any:
        return rows if inputs.device == "cuda" else self.backend.asarray(rows, inputs.case.dtype, inputs.device)


def sampling(inputs: Inputs, backend: Backend) -> Sampling:
    """Parameters with the temperature on the device and filters that are off known to the host."""
    case, device = inputs.case, inputs.device
    made = Sampling.of(case.batch, temperature=0.0 if case.method == "greedy" else inputs.temperature)
    heat = _put(backend, made.temperature, "float64", device)
    given = settings(case.filters)
    top_k = np.full(case.batch, int(given.get("top_k", 0)), np.int64)
    top_p, min_p = np.full(case.batch, given.get("top_p", 1.0)), np.full(case.batch, given.get("min_p", 0.0))
    if device != "cuda" or not given:
        return Sampling(heat, top_k, top_p, min_p)
    on = (_put(backend, v, d, device) for v, d in ((top_k, "int64"), (top_p, "float64"), (min_p, "float64")))
    return Sampling(heat, *on)


def _put(backend: Backend, values: Any, dtype: str, device: str) -> Any:
    return backend.asarray(values, dtype, device) if device == "cuda" else values


def stream(inputs: Inputs, backend: Backend) -> Stream:
    """A stream per request, on the device; other inputs have others."""
    numbers = np.arange(inputs.case.batch)
    parts = ((numbers + 1, "uint64"), (numbers * 7 + 3 + inputs.seed, "uint32"), (numbers, "uint32"))
    return Stream(*(_put(backend, n.astype(d), d, inputs.device) for n, d in parts))


def drafted(inputs: Inputs, backend: Backend, near: Any, own: Sampling, source: Stream) -> tuple[Any, Proposal]:
    """Drafts with the law they were really drawn from: the backend's own record, or the likeliest tokens."""
    case, device = inputs.case, inputs.device

    def place(ids: Any) -> Any:
        chosen = ids if inputs.drafts is None else inputs.drafts
        return backend.asarray(np.ascontiguousarray(chosen), "int64", device)

    if case.proposal == "dense":
        steps = [backend.sample(near[:, j], own, source.draw(Domain.DRAFT, j)) for j in range(case.draft_len)]
        joined = backend.concat([s.proposal for s in steps])
        tokens = np.stack([backend.to_numpy(s.tokens) for s in steps], axis=1)
        return place(tokens), Dense(joined.logits, own, joined.stats)
    if inputs.drafts is not None:
        return place(None), OneHot()
    ids, probabilities = likeliest(near, own, backend, device)
    if case.proposal == "onehot":
        return place(ids[..., 0]), OneHot()
    rng = np.random.default_rng(case.batch)
    nth = (probabilities.cumsum(-1) < rng.random((*ids.shape[:2], 1))).sum(-1).clip(max=ids.shape[-1] - 1)
    tokens = np.take_along_axis(ids, nth[..., None], -1)[..., 0]
    table = (backend.asarray(ids, "int64", device), backend.asarray(np.log(probabilities), "float32", device))
    return place(tokens), Sparse(*table)


def likeliest(near: Any, own: Sampling, backend: Backend, device: str) -> tuple[Any, Any]:
    """The ``LISTED`` largest logits of each row: ids, and their law at the call's temperature."""
    count = min(LISTED, int(near.shape[-1]))
    ids, values = _largest(near, count) if device == "cuda" else _partitioned(backend.to_numpy(near), count)
    heat = float(np.asarray(backend.to_numpy(own.temperature))[0]) or 1.0
    weights = np.exp((values - values[..., :1]) / heat)
    return ids, weights / weights.sum(-1, keepdims=True)


def _largest(near: Any, count: int) -> tuple[Any, Any]:
    """Ids and logits on the host, largest first, chosen on the device: the rows may be gigabytes."""
    values, ids = near.topk(count, dim=-1)
    return ids.cpu().numpy(), values.double().cpu().numpy()


def _partitioned(rows: Any, count: int) -> tuple[Any, Any]:
    ids = np.argpartition(-rows, count - 1, axis=-1)[..., :count]
    values = np.take_along_axis(rows, ids, -1).astype(np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.take_along_axis(ids, order, -1).astype(np.int64), np.take_along_axis(values, order, -1)
