"""Where rows lie and which drafts exist: clauses LAY."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Dense
from flashspec_conformance import build, generate, oracle
from flashspec_conformance.case import Case, HostVerdict, Knobs
from flashspec_conformance.compare import TOLERANCE, check, check_request, check_shapes
from flashspec_conformance.probes import batch, coin, flat, log_row, request, single
from flashspec_conformance.subject import Subject


def _knobs(subject: Subject) -> Knobs:
    return Knobs(0.7 if subject.warm_methods else 0.0)


@pytest.mark.clause("LAY-1")
@pytest.mark.parametrize("seed", range(8))
def test_padded_and_ragged_give_the_same(subject: Subject, seed: int) -> None:
    """The same requests give the same bits in both layouts."""
    case = generate.case(np.random.default_rng(seed), subject, (5, 3, 33), subject.dtype, "padded")
    padded = build.verify(subject, case)
    ragged = build.verify(subject, attrs.evolve(case, layout="ragged"))
    for name in ("tokens", "num_accepted", "num_emitted", "status", "logprobs"):
        assert np.array_equal(getattr(padded, name), getattr(ragged, name)), name
    _compare(case, padded)


def _compare(case: Case, got: HostVerdict) -> None:
    check_shapes(case, got)
    for b, expected in enumerate(oracle.outcomes(case)):
        if expected.margin > TOLERANCE:
            check_request(case, b, got, expected)


@pytest.mark.clause("LAY-1", "LAY-3")
@pytest.mark.parametrize("lengths", [(0,), (0, 0), (3, 0, 1), (0, 3, 0, 2, 0), (1, 1, 4, 0)])
def test_requests_without_rows_emit_nothing(subject: Subject, lengths: tuple[int, ...]) -> None:
    """Empty requests among others get counts 0, tokens -1 and status 0, and shift nobody's rows."""
    knobs, rng = _knobs(subject), np.random.default_rng(len(lengths))
    requests = []
    for n in lengths:
        rows = log_row(rng.dirichlet(np.ones(7), n)) if n else np.zeros((0, 7))
        drafts = tuple(int(x) for x in np.argmax(rows[: max(n - 1, 0)], axis=1))
        requests.append(request(rows, drafts, coins=(coin(0.1),) * max(n - 1, 0), knobs=knobs))
    case = Case(tuple(requests), 7, build.record_dtype(subject), "ragged", method=subject.method, width=4)
    got = check(subject, case)
    assert [int(e) == 0 for e in got.num_emitted] == [n == 0 for n in lengths]


@pytest.mark.clause("LAY-1", "OUT-1")
@pytest.mark.parametrize("layout_name", ["padded", "ragged"])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_an_empty_batch_gives_empty_outputs(subject: Subject, layout_name: str, width: int) -> None:
    """B = 0 is a call like any other."""
    got = check(subject, Case((), 5, subject.dtype, layout_name, method=subject.method, width=width))
    assert got.tokens.shape == (0, width + 1)


@pytest.mark.clause("LAY-2", "STS-3")
@pytest.mark.parametrize("end", [0, 1, 2, 3])
def test_minus_one_ends_the_chain_wherever_it_stands(subject: Subject, layout: str, kind: str, end: int) -> None:
    """Drafts, rows and tables after -1 are not read, and the token comes from the row of the -1."""
    rows = np.stack([flat(9, 1, 4, 6, 8)] * 5)
    rows[end + 1 :] = np.nan
    drafts = tuple(-1 if j == end else 1 if j < end else 8 for j in range(4))
    ids = np.tile([1, 4], (4, 1))
    own: dict[str, Any] = {
        "onehot": {},
        "sparse": {
            "sparse_ids": ids,
            "sparse_logprobs": np.where(np.arange(4)[:, None] < end, np.full(2, -0.6931472), np.nan),
        },
        "dense": {"dense_logits": np.stack([flat(9, 1, 4) if j < end else np.full(9, np.nan) for j in range(4)])},
    }[kind]
    case = single(
        rows,
        drafts,
        kind=kind,
        coins=(coin(0.05),) * 4,
        knobs=_knobs(subject),
        method=subject.method,
        layout=layout,
        dtype=subject.dtype,
        **own,
    )
    got = check(subject, case)
    assert got.status[0] == 0
    assert got.num_accepted[0] == end or (subject.method in {"block", "path"} and got.num_accepted[0] <= end)


@pytest.mark.clause("LAY-2")
@pytest.mark.needs("method:token")
def test_minus_one_is_no_index(subject: Subject, kind: str) -> None:
    """A -1 does not read the last token of the vocabulary, however likely that is."""
    rows = np.stack([log_row([0.05, 0.05, 0.9])] * 2)
    own: dict[str, Any] = {
        "onehot": {},
        "sparse": {"sparse_ids": np.array([[2, -1]]), "sparse_logprobs": np.array([[0.0, 0.0]])},
        "dense": {"dense_logits": np.array([[0.0, 0.0, 9.0]])},
    }[kind]
    judged = [
        request(rows, (-1,), kind=kind, coins=(c,), integers=(i, 0), knobs=Knobs(1.0), **own)
        for c, i in ((0, 0), (0, 1 << 63), (1 << 31, 2**63))
    ]
    got = check(subject, Case(tuple(judged), 3, build.record_dtype(subject)))
    assert got.num_accepted.tolist() == [0, 0, 0]


@pytest.mark.clause("LAY-1", "LAY-2")
@pytest.mark.parametrize("extra", [0, 1, 5])
def test_wider_padding_changes_nothing(subject: Subject, layout: str, extra: int) -> None:
    """A larger K only adds -1 at the end."""
    base = generate.case(np.random.default_rng(extra + 40), subject, (4, 3, 17), subject.dtype, layout)
    got = build.verify(subject, base)
    wide = build.verify(subject, attrs.evolve(base, width=base.drafts_width + extra))
    assert [wide.row(b) for b in range(4)] == [got.row(b) for b in range(4)]
    _compare(base, got)


@pytest.mark.clause("LAY-4", "LAY-1")
@pytest.mark.parametrize("poison", [np.nan, np.inf, 60000.0])
@pytest.mark.parametrize("vocab", [5, 1025])
def test_the_row_stride_and_what_lies_between_do_not_matter(
    subject: Subject, layout: str, vocab: int, poison: float
) -> None:
    """Rows may be cut out of wider ones, or every second row of more, whatever the rest holds."""
    case = _strided_case(subject, layout, vocab)
    plain = build.call(subject, case)
    values = subject.get(plain.target_logits).astype(np.float64)
    wide = np.full((*values.shape[:-1], vocab + 7), poison)
    wide[..., :vocab] = values
    cut = attrs.evolve(plain, target_logits=subject.put(wide, case.dtype)[..., :vocab])
    shifted = np.full((*values.shape[:-1], vocab + 3), poison)
    shifted[..., 3:] = values
    moved = attrs.evolve(plain, target_logits=subject.put(shifted, case.dtype)[..., 3:])
    between = np.full((values.shape[0] * 2, *values.shape[1:]), poison)
    between[::2] = values
    skipped = attrs.evolve(plain, target_logits=subject.put(between, case.dtype)[::2, ...])
    for call in (plain, cut, moved, skipped):
        _compare(case, build.host(subject, call(subject.backend)))


def _strided_case(subject: Subject, layout: str, vocab: int) -> Case:
    rng = np.random.default_rng(vocab)
    requests = []
    for _ in range(2):
        rows = (
            rng.permuted(np.linspace(-2.0, 2.0, vocab)[None].repeat(3, 0), axis=1).astype(np.float16).astype(np.float64)
        )
        drafts = tuple(int(x) for x in np.argmax(rows[:2], axis=1))
        requests.append(request(rows, drafts, coins=(0, coin(0.4)), integers=(1 << 62,) * 3, knobs=_knobs(subject)))
    return batch(*requests, dtype=subject.dtype, layout=layout, method=subject.method)


@pytest.mark.clause("LAY-4", "PRP-3")
@pytest.mark.needs("method:token", "proposal:dense")
def test_draft_rows_may_be_strided_too(subject: Subject) -> None:
    """Draft logits may be cut out of wider rows."""
    rows = np.stack([log_row([0.3, 0.3, 0.2, 0.2])] * 2)
    own = {"kind": "dense", "dense_logits": log_row([[0.2, 0.5, 0.2, 0.1]])}
    judged = [request(rows, (1,), coins=(coin(u),), **own) for u in (0.1, 0.55, 0.65, 0.9)]
    case = Case(tuple(judged), 4, build.record_dtype(subject))
    plain = build.call(subject, case)
    assert isinstance(plain.proposal, Dense)
    values = subject.get(plain.proposal.logits)
    wide = np.full((*values.shape[:-1], 9), np.nan)
    wide[..., :4] = values
    dense = attrs.evolve(plain.proposal, logits=subject.put(wide, case.dtype)[..., :4])
    _compare(case, build.host(subject, attrs.evolve(plain, proposal=dense)(subject.backend)))
