"""The forms that arguments may have: integer dtypes, views, names, junk bits, absent coins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Dense, Mixed, Proposal, Ragged, Sparse, Stream, Uniforms
from flashspec_conformance import build, generate
from flashspec_conformance.build import Call, knobs_sampling, pack
from flashspec_conformance.case import Case, HostVerdict, Knobs, to_dtype
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.probes import batch, integer, request
from flashspec_conformance.subject import DTYPES, Subject


def _case(subject: Subject, layout: str, method: str, seed: int = 21) -> Case:
    case = generate.case(np.random.default_rng(seed), subject, (7, 3, 33), subject.dtype, layout)
    return attrs.evolve(case, method=method, stream=seed % 2 == 0)


def _same(subject: Subject, case: Case, given: Call) -> None:
    """The call gives the bits of the case as it is usually laid out, which are the spec's."""
    wanted, got = check(subject, case, tally=Tally()), build.host(subject, given(subject.backend))
    for field in attrs.fields(HostVerdict):
        left, right = getattr(wanted, field.name), getattr(got, field.name)
        assert np.array_equal(left, right), f"{field.name} is {right.tolist()} instead of {left.tolist()}"


def _proposal(proposal: Proposal, sparse: Callable[[Sparse], Sparse], dense: Callable[[Dense], Dense]) -> Proposal:
    """The proposal with its tables changed."""
    if isinstance(proposal, Sparse):
        return sparse(proposal)
    if isinstance(proposal, Dense):
        return dense(proposal)
    if isinstance(proposal, Mixed):
        s, d = proposal.sparse, proposal.dense
        return Mixed(proposal.kind, None if s is None else sparse(s), None if d is None else dense(d))
    return proposal


@pytest.mark.clause("LAY-1", "LAY-2", "PRP-2", "PRP-6")
@pytest.mark.parametrize("name", ["int32", "int64"])
def test_integers_may_be_of_either_dtype(subject: Subject, layout: str, method: str, name: str) -> None:
    """Drafts, row bounds, sparse ids and kinds of 32 and of 64 bits are the same numbers."""
    case = _case(subject, layout, method)
    call = build.call(subject, case)

    def cast(array: Any) -> Any:
        return subject.put(subject.get(array), name)

    proposal = _proposal(call.proposal, lambda t: attrs.evolve(t, ids=cast(t.ids)), lambda t: t)
    if isinstance(proposal, Mixed):
        proposal = attrs.evolve(proposal, kind=cast(proposal.kind))
    rows = Ragged(cast(call.layout.cu_rows)) if isinstance(call.layout, Ragged) else call.layout
    _same(subject, case, attrs.evolve(call, draft_tokens=cast(call.draft_tokens), proposal=proposal, layout=rows))


def _cut(subject: Subject, array: Any, dtype: str) -> Any:
    """The array as a view: columns of a wider one, or every second number of a longer one."""
    values = subject.get(array)
    if values.ndim == 1:
        wide = np.ones(2 * len(values), values.dtype)
        wide[::2] = values
        return subject.put(wide, dtype)[::2]
    wide = np.ones((*values.shape[:-1], values.shape[-1] + 3), values.dtype)
    wide[..., 2:-1] = values
    return subject.put(wide, dtype)[..., 2:-1]


def _views(subject: Subject, call: Call) -> Call:
    """The call with every table as a view into a larger one."""
    floats = build.record_dtype(subject)

    def masked(sampling: Any) -> Any:
        mask = sampling.allowed
        return sampling if mask is None else attrs.evolve(sampling, allowed=_cut(subject, mask, "int32"))

    def sparse(t: Sparse) -> Sparse:
        return Sparse(_cut(subject, t.ids, "int64"), _cut(subject, t.logprobs, floats))

    proposal = _proposal(call.proposal, sparse, lambda t: attrs.evolve(t, sampling=masked(t.sampling)))
    if isinstance(proposal, Mixed):
        proposal = attrs.evolve(proposal, kind=_cut(subject, proposal.kind, "int32"))
    numbers = call.randomness
    if isinstance(numbers, Uniforms) and numbers.accept is not None:
        numbers = Uniforms(_cut(subject, numbers.sampling, "uint64"), _cut(subject, numbers.accept, "uint32"))
    layout = call.layout
    layout = Ragged(_cut(subject, layout.cu_rows, "int32")) if isinstance(layout, Ragged) else layout
    drafts = _cut(subject, call.draft_tokens, "int64")
    return Call(call.target_logits, drafts, proposal, layout, masked(call.sampling), numbers, call.method)


@pytest.mark.clause("LAY-1", "LAY-2", "PRP-2", "FLT-5")
@pytest.mark.parametrize("seed", [21, 23, 25, 27])
def test_tables_may_be_views(subject: Subject, layout: str, method: str, seed: int) -> None:
    """Drafts, bounds, masks, sparse tables and integers may be cut out of wider arrays, as a graph's buffers are."""
    case = _case(subject, layout, method, seed)
    _same(subject, case, _views(subject, build.call(subject, case)))


@pytest.mark.clause("RNG-3")
def test_streams_may_be_views(subject: Subject, method: str) -> None:
    """Every second number of longer vectors."""
    case = _case(subject, "padded", method, 22)
    call = build.call(subject, case)
    assert isinstance(call.randomness, Stream)
    r = call.randomness
    vectors = ((r.seed, "uint64"), (r.position, "uint32"), (r.sequence, "uint32"))
    own = (_cut(subject, subject.put(values, name), name) for values, name in vectors)
    _same(subject, case, attrs.evolve(call, randomness=Stream(*own)))


@pytest.mark.clause("LAY-4", "PRP-7")
def test_sample_reads_rows_wherever_they_lie(subject: Subject, dtype: str) -> None:
    """The last position of a prefill, ``[:, -1]`` of ``[B, L, V]``, and columns of wider rows are rows too."""
    values = to_dtype(np.random.default_rng(4).normal(0.0, 2.0, (3, 40)), dtype)
    deep, wide = np.full((3, 4, 40), 9.0), np.full((3, 51), 9.0)
    deep[:, -1], wide[:, 7:47] = values, values
    knobs = [Knobs(t if subject.warm_methods else 0.0) for t in (0.7, 0.0, 1.3)]
    uniforms = Uniforms(subject.put(np.array([integer(u) for u in (0.2, 0.5, 0.9)], np.uint64), "uint64"))
    views = (subject.put(values, dtype), subject.put(deep, dtype)[:, 3, :], subject.put(wide, dtype)[..., 7:47])
    plain, *others = (subject.backend.sample(v, knobs_sampling(knobs), uniforms) for v in views)
    assert subject.get(plain.tokens)[1] == int(np.argmax(values[1]))
    for drawn in others:
        assert subject.get(drawn.tokens).tolist() == subject.get(plain.tokens).tolist()
        assert subject.get(drawn.logprobs).tolist() == subject.get(plain.logprobs).tolist()
        assert np.array_equal(subject.get(drawn.proposal.logits)[:, 0], subject.get(plain.proposal.logits)[:, 0])


def _junk(subject: Subject, words: Any, vocab: int) -> Any:
    """The mask with every bit set that belongs to no token."""
    host = np.array(subject.get(words)).view(np.uint32)
    host[..., -1] |= np.uint32(0xFFFF_FFFF << vocab % 32 & 0xFFFF_FFFF)
    return subject.put(host.view(np.int32), "int32")


@pytest.mark.clause("FLT-5", "STS-2")
@pytest.mark.needs("filter:allowed")
@pytest.mark.parametrize("vocab", [7, 33, 1030])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_bits_behind_the_vocabulary_mean_nothing(subject: Subject, vocab: int, temperature: float) -> None:
    """A mask's last word may have bits set that belong to no token; they make no row less empty."""
    knobs, rows = Knobs(temperature if subject.warm_methods else 0.0), np.zeros((2, vocab))
    one, none = np.zeros((2, 2, vocab), np.bool_)
    one[:, vocab - 1] = True
    own: dict[str, Any] = {"knobs": knobs, "integers": (integer(0.99),) * 2, "coins": (0,)}
    judged = [request(rows, (vocab - 1,), allowed=mask, **own) for mask in (one, none)]
    case = batch(*judged, dtype=subject.dtype, method=subject.method)
    call = build.call(subject, case)
    junk = attrs.evolve(call.sampling, allowed=_junk(subject, call.sampling.allowed, vocab))
    assert check(subject, case).status.tolist() == [0, 2]
    _same(subject, case, attrs.evolve(call, sampling=junk))
    mask = _junk(subject, subject.put(pack(np.stack([one[0], none[0]])), "int32"), vocab)
    uniforms = Uniforms(subject.put(np.array([integer(0.99)] * 2, np.uint64), "uint64"))
    drawn = subject.backend.sample(subject.put(rows, subject.dtype), knobs_sampling([knobs] * 2, mask), uniforms)
    assert subject.get(drawn.tokens).tolist() == [vocab - 1, -1]


@pytest.mark.clause("GRD-1")
@pytest.mark.needs("method:greedy")
def test_the_greedy_method_needs_no_coins(subject: Subject, layout: str) -> None:
    """``Uniforms.accept`` may be None where nothing flips a coin."""
    rows = np.array([[0.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    judged = [request(rows, drafts, coins=(), knobs=Knobs(0.0)) for drafts in ((1, 0), (1, 1), (0, 0))]
    case = batch(*judged, dtype=subject.dtype, layout=layout, method="greedy")
    assert check(subject, case).num_accepted.tolist() == [2, 1, 0]


@pytest.mark.clause("PRP-3")
@pytest.mark.needs("method:token", "proposal:dense")
def test_draft_logits_may_have_a_dtype_of_their_own(subject: Subject, dtype: str) -> None:
    """A drafter's logits need not have the target's dtype."""
    case = generate.case(np.random.default_rng(31), subject, (6, 3, 9), subject.dtype, "padded")
    rng, judged = np.random.default_rng(5), []
    for r in case.requests:
        own = generate.tables(rng, generate.Palette(), r, "dense", dtype)
        judged.append(attrs.evolve(r, **own, sparse_ids=None, sparse_logprobs=None))
    case = attrs.evolve(case, requests=tuple(judged), method="token")
    call = build.call(subject, case)
    assert isinstance(call.proposal, Dense)
    other = attrs.evolve(call.proposal, logits=subject.put(subject.get(call.proposal.logits), dtype))
    assert dtype in DTYPES
    _same(subject, case, attrs.evolve(call, proposal=other))


@pytest.mark.clause("CAP-1", "ACC-1")
@pytest.mark.needs("method:token")
def test_arguments_have_the_names_and_the_default_of_the_contract(subject: Subject) -> None:
    """Calls by name work, and a ``verify`` without a method is judged by the token rule."""
    rows = np.zeros((2, 3))
    judged = [request(rows, (2,), coins=(c,), integers=(integer(0.2),) * 2, knobs=Knobs(0.7)) for c in (0, 3 << 30)]
    case = batch(*judged, dtype=subject.dtype)
    named = {f.name: getattr(build.call(subject, case), f.name) for f in attrs.fields(Call) if f.name != "method"}
    got = build.host(subject, subject.backend.verify(**named))
    assert [got.row(b) for b in range(2)] == [check(subject, case).row(b) for b in range(2)]
    assert got.num_accepted.tolist() == [1, 0]
    uniforms = Uniforms(subject.put(np.zeros(1, np.uint64), "uint64"))
    logits = subject.put(np.array([[0.0, 1.0]]), subject.dtype)
    drawn = subject.backend.sample(logits=logits, sampling=knobs_sampling([Knobs(0.0)]), randomness=uniforms)
    assert subject.get(drawn.tokens).tolist() == [1]
