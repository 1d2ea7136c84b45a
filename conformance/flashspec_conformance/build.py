"""From a host case to a call of a backend and back."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec import contract
from flashspec.checks import COINLESS
from flashspec.contract import Dense, Mixed, OneHot, Proposal, Sampling, Sparse
from flashspec_conformance.case import Bools, Case, HostVerdict, Knobs, Request
from flashspec_conformance.subject import PROPOSALS, Subject

KINDS = {"onehot": contract.KIND_ONEHOT, "sparse": contract.KIND_SPARSE, "dense": contract.KIND_DENSE}
JUNK_DRAFT = 0
"""A draft that no row judges (ragged): a plausible id, so that reading it shows."""


@attrs.frozen(eq=False)
class Call:
    """The arguments of one ``verify``, in the backend's own arrays."""

    target_logits: Any
    draft_tokens: Any
    proposal: Proposal
    layout: contract.Layout
    sampling: Sampling
    randomness: contract.Stream | contract.Uniforms
    method: str

    def __call__(self, backend: contract.Backend) -> contract.Verdict:
        return backend.verify(
            self.target_logits,
            self.draft_tokens,
            self.proposal,
            self.layout,
            self.sampling,
            self.randomness,
            self.method,
        )


def pack(allowed: Bools) -> npt.NDArray[np.int32]:
    """Rows of booleans as the contract's bitmask: bit ``v % 32`` of word ``v // 32``."""
    rows, vocab = allowed.shape
    words = -(-vocab // 32)
    padded = np.zeros((rows, words * 32), np.uint64)
    padded[:, :vocab] = allowed
    bits = padded.reshape(rows, words, 32) << np.arange(32, dtype=np.uint64)
    packed: npt.NDArray[np.int32] = bits.sum(axis=2).astype(np.uint32).view(np.int32)
    return packed


def knobs_sampling(knobs: list[Knobs], allowed: Any = None) -> Sampling:
    """Host sampling parameters, one set per request."""
    return Sampling(
        np.array([k.temperature for k in knobs], np.float64),
        np.array([k.top_k for k in knobs], np.int64),
        np.array([k.top_p for k in knobs], np.float64),
        np.array([k.min_p for k in knobs], np.float64),
        allowed,
    )


def call(subject: Subject, case: Case, kind: str | None = None) -> Call:
    """Lay a case out for a backend; every place that must not be read holds poison.

    ``kind`` forces the type of the proposal where it is ambiguous (``mixed`` for a uniform batch).
    """
    case = declared_form(subject, case)
    return Call(
        subject.put(_targets(case), case.dtype),
        subject.put(_drafts(case), "int64"),
        _proposal(subject, case, kind),
        _layout(subject, case),
        knobs_sampling([r.knobs for r in case.requests], _allowed(subject, case)),
        _stream(case) if case.stream else _uniforms(subject, case),
        case.method,
    )


def declared_form(subject: Subject, case: Case) -> Case:
    """The case with its one-hot drafts as point masses of a declared kind, where one-hot is not declared."""
    if subject.declares("proposal:onehot"):
        return case
    kind = "sparse" if subject.declares("proposal:sparse") else "dense"
    return attrs.evolve(case, requests=tuple(_point_mass(r, kind) if r.kind == "onehot" else r for r in case.requests))


def _point_mass(request: Request, kind: str) -> Request:
    drafts = np.array(request.drafts, np.int64)
    inside = (drafts >= 0) & (drafts < request.rows.shape[1])
    if kind == "sparse":
        ids = np.where(inside, drafts, contract.NO_TOKEN)[:, None]
        return attrs.evolve(request, kind=kind, sparse_ids=ids, sparse_logprobs=np.zeros(ids.shape))
    logits = np.full((len(drafts), request.rows.shape[1]), -np.inf)
    logits[np.flatnonzero(inside), drafts[inside]] = 0.0
    return attrs.evolve(request, kind=kind, dense_logits=logits, dense_knobs=Knobs())


def verify(subject: Subject, case: Case, kind: str | None = None) -> HostVerdict:
    """Build the call, make it, and bring the verdict to the host."""
    return host(subject, call(subject, case, kind)(subject.backend))


def host(subject: Subject, verdict: contract.Verdict) -> HostVerdict:
    """A verdict on the host."""
    v = verdict
    return HostVerdict(*(subject.get(a) for a in (v.tokens, v.num_accepted, v.num_emitted, v.status, v.logprobs)))


def _targets(case: Case) -> npt.NDArray[Any]:
    if case.layout == "ragged":
        return np.concatenate([np.zeros((0, case.vocab)), *(r.rows for r in case.requests)])
    out = np.full((len(case.requests), case.drafts_width + 1, case.vocab), np.nan)
    for b, r in enumerate(case.requests):
        out[b, : r.length] = r.rows
    return out


def _drafts(case: Case) -> npt.NDArray[np.int64]:
    fill = JUNK_DRAFT if case.layout == "ragged" else contract.NO_TOKEN
    out = np.full((len(case.requests), case.drafts_width), fill, np.int64)
    for b, r in enumerate(case.requests):
        out[b, : len(r.drafts)] = r.drafts
    return out


def _layout(subject: Subject, case: Case) -> contract.Layout:
    if case.layout == "padded":
        return contract.Padded()
    edges = np.cumsum([0, *(r.length for r in case.requests)])
    return contract.Ragged(subject.put(edges.astype(np.int32), "int32"))


def _allowed(subject: Subject, case: Case) -> Any:
    if all(r.allowed is None for r in case.requests):
        return None
    width = case.drafts_width + 1
    parts = [np.zeros((0, case.vocab), np.bool_)]
    for r in case.requests:
        rows = r.length if case.layout == "ragged" else width
        part = np.ones((rows, case.vocab), np.bool_)
        if r.allowed is not None:
            part[: r.length] = r.allowed
        parts.append(part)
    return subject.put(pack(np.concatenate(parts)), "int32")


def _proposal(subject: Subject, case: Case, kind: str | None) -> Proposal:
    kinds = {r.kind for r in case.requests} or {subject.values(PROPOSALS, "proposal")[0]}
    chosen = kind or (next(iter(kinds)) if len(kinds) == 1 else "mixed")
    if chosen == "onehot":
        return OneHot()
    if chosen == "sparse":
        return _sparse(subject, case)
    if chosen == "dense":
        return _dense(subject, case)
    codes = np.array([KINDS[r.kind] for r in case.requests], np.int32)
    sparse = _sparse(subject, case) if "sparse" in kinds else None
    dense = _dense(subject, case) if "dense" in kinds else None
    return Mixed(subject.put(codes, "int32"), sparse, dense)


def _sparse(subject: Subject, case: Case) -> Sparse:
    tables = [r.sparse_ids for r in case.requests if r.sparse_ids is not None]
    places = max([1, *(int(t.shape[1]) for t in tables)])
    shape = (len(case.requests), case.drafts_width, places)
    ids, logprobs = np.full(shape, contract.NO_TOKEN, np.int64), np.full(shape, np.nan)
    for b, r in enumerate(case.requests):
        if r.kind == "sparse" and r.sparse_ids is not None and r.sparse_logprobs is not None:
            n, s = r.sparse_ids.shape
            ids[b, :n, :s], logprobs[b, :n, :s] = r.sparse_ids, r.sparse_logprobs
    return Sparse(subject.put(ids, "int64"), subject.put(logprobs, record_dtype(subject)))


def record_dtype(subject: Subject) -> str:
    """The dtype of recorded numbers: float32 where declared."""
    return "float32" if subject.declares("dtype:float32") else subject.dtype


def _dense(subject: Subject, case: Case) -> Dense:
    batch, width = len(case.requests), case.drafts_width
    logits = np.full((batch, width, case.vocab), np.nan)
    allowed = np.ones((batch, width, case.vocab), np.bool_)
    for b, r in enumerate(case.requests):
        if r.kind == "dense" and r.dense_logits is not None:
            logits[b, : r.dense_logits.shape[0]] = r.dense_logits
            if r.dense_allowed is not None:
                allowed[b, : r.dense_allowed.shape[0]] = r.dense_allowed
    masked = any(r.dense_allowed is not None for r in case.requests)
    mask = subject.put(pack(allowed.reshape(batch * width, case.vocab)), "int32") if masked else None
    sampling = knobs_sampling([r.dense_knobs for r in case.requests], mask)
    return Dense(subject.put(logits, case.dtype), sampling)


def _uniforms(subject: Subject, case: Case) -> contract.Uniforms:
    batch, width = len(case.requests), case.drafts_width
    coins, integers = np.zeros((batch, width), np.uint32), np.zeros((batch, width + 1), np.uint64)
    for b, r in enumerate(case.requests):
        coins[b, : len(r.coins)], integers[b, : len(r.integers)] = r.coins, r.integers
    drawn = subject.put(integers, "uint64")
    if case.method in COINLESS and not any(r.coins for r in case.requests):
        return contract.Uniforms(drawn)
    return contract.Uniforms(drawn, subject.put(coins, "uint32"))


def _stream(case: Case) -> contract.Stream:
    r: tuple[Request, ...] = case.requests
    return contract.Stream.of([x.seed for x in r], [x.position for x in r], [x.sequence for x in r])
