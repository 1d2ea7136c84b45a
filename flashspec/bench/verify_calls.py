"""The calls that ``bench verify`` times: random logits, drafts drawn from a noisy copy of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec.contract import (
    Backend,
    Dense,
    Domain,
    OneHot,
    Padded,
    Proposal,
    Sampling,
    Sparse,
    Stream,
)

SPREAD = 3.0
"""Standard deviation of the target's logits."""
NOISE = 1.0
"""Standard deviation of what the draft's logits differ by."""
LISTED = 16
"""Tokens that a sparse proposal lists."""
READS_Q = frozenset({"token", "block"})
"""Methods that read proposals."""
WIDTH = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@attrs.frozen
class Case:
    """One shape of call."""

    method: str
    """``token``, ``block``, ``path``, ``greedy`` or ``sample``."""
    proposal: str
    batch: int
    draft_len: int
    vocab: int
    dtype: str
    filters: str
    """``none``, or settings such as ``top_k=50,top_p=0.9``."""

    @property
    def bytes(self) -> int:
        """What has to be read: every target row once, and one draft row of each request if q is dense and read."""
        rows = 1 if self.method == "sample" else self.draft_len + 1
        dense = int(self.proposal == "dense" and self.method in READS_Q)
        return self.batch * (rows + dense) * self.vocab * WIDTH[self.dtype]

    @property
    def held(self) -> int:
        """Bytes of logits that a call's inputs hold."""
        rows = 1 if self.method == "sample" else self.draft_len + 1
        dense = self.draft_len if self.proposal == "dense" else 0
        return self.batch * (rows + dense) * self.vocab * WIDTH[self.dtype]


def settings(filters: str) -> dict[str, float]:
    """The filters of a case by name."""
    if filters == "none":
        return {}
    return {name: float(value) for name, _, value in (part.partition("=") for part in filters.split(","))}


def sampling(case: Case, backend: Backend, temperature: float, device: str) -> Sampling:
    """Parameters with the temperature on the device and filters that are off known to the host."""
    made = Sampling.of(case.batch, temperature=0.0 if case.method == "greedy" else temperature)
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


def stream(case: Case, backend: Backend, device: str) -> Stream:
    """A stream per request, on the device."""
    numbers = np.arange(case.batch)
    parts = ((numbers + 1, "uint64"), (numbers * 7 + 3, "uint32"), (numbers, "uint32"))
    return Stream(*(_put(backend, n.astype(d), d, device) for n, d in parts))


def logits(case: Case, backend: Backend, device: str, seed: int) -> tuple[Any, Any]:
    """Target rows ``[B, K + 1, V]`` and draft rows ``[B, K, V]``, made where they are used."""
    shape = (case.batch, case.draft_len + 1, case.vocab)
    if device == "cuda":
        import torch

        generator = torch.Generator(device).manual_seed(seed)
        target = torch.empty(shape, device=device, dtype=getattr(torch, case.dtype))
        target.normal_(0, SPREAD, generator=generator)
        noise = torch.empty_like(target[:, :-1]).normal_(0, NOISE, generator=generator)
        return target, (target[:, :-1] + noise).contiguous()
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape, np.float32) * np.float32(SPREAD)
    near = values[:, :-1] + rng.standard_normal((shape[0], shape[1] - 1, shape[2]), np.float32) * np.float32(NOISE)
    return backend.asarray(values, case.dtype, device), backend.asarray(near, case.dtype, device)


def call(case: Case, backend: Backend, temperature: float, device: str, seed: int) -> Callable[[], Any]:
    """A call of the case on inputs of its own."""
    target, near = logits(case, backend, device, seed)
    own, source = sampling(case, backend, temperature, device), stream(case, backend, device)
    if case.method == "sample":
        row = target[:, 0]
        return lambda: backend.sample(row, own, source.draw(Domain.DRAFT))
    drafts, proposal = drafted(case, backend, near, own, source, device)
    # On CUDA the host does not see that every temperature is 0, so greedy requests come as any others.
    method = "token" if case.method == "greedy" and device == "cuda" else case.method
    return lambda: backend.verify(target, drafts, proposal, Padded(), own, source, method)


def drafted(
    case: Case, backend: Backend, near: Any, own: Sampling, source: Stream, device: str
) -> tuple[Any, Proposal]:
    """Drafts with the law they were really drawn from: the backend's own record, or the likeliest tokens."""
    if case.proposal == "dense":
        steps = [backend.sample(near[:, j], own, source.draw(Domain.DRAFT, j)) for j in range(case.draft_len)]
        tokens = np.stack([backend.to_numpy(s.tokens) for s in steps], axis=1)
        joined = backend.concat([s.proposal for s in steps])
        return backend.asarray(tokens, "int64", device), Dense(joined.logits, own, joined.stats)
    ids, probabilities = likeliest(near, own, backend, device)
    rng = np.random.default_rng(case.batch)
    if case.proposal == "onehot":
        return backend.asarray(ids[..., 0].copy(), "int64", device), OneHot()
    place = (probabilities.cumsum(-1) < rng.random((*ids.shape[:2], 1))).sum(-1).clip(max=ids.shape[-1] - 1)
    tokens = np.take_along_axis(ids, place[..., None], -1)[..., 0]
    table = (backend.asarray(ids, "int64", device), backend.asarray(np.log(probabilities), "float32", device))
    return backend.asarray(tokens, "int64", device), Sparse(*table)


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
