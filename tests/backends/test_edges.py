"""Empty calls, rows without a law, drafts and proposals that are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flashspec.contract import (
    Backend,
    Dense,
    Domain,
    OneHot,
    Padded,
    Ragged,
    RowStats,
    Sampling,
    Sparse,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import ContractError

NAN, INF = float("nan"), float("inf")


def verdict(
    backend: Backend,
    rows: npt.ArrayLike,
    drafts: list[list[int]],
    proposal: Any = None,
    temperature: float = 0.7,
    coin: int = 0,
    integer: int = 2**63,
) -> list[Any]:
    """Tokens, accepted, emitted and status of a padded call with equal coins."""
    given = np.array(drafts)
    batch, longest = given.shape
    randomness = Uniforms(
        backend.asarray(np.full((batch, longest + 1), integer, np.uint64), "uint64"),
        backend.asarray(np.full((batch, longest), coin, np.uint32), "uint32"),
    )
    got = backend.verify(
        backend.asarray(np.asarray(rows), "float32"),
        backend.asarray(given, "int64"),
        proposal or OneHot(),
        Padded(),
        Sampling.of(batch, temperature=temperature),
        randomness,
    )
    return host(backend, got)


def host(backend: Backend, got: Verdict) -> list[Any]:
    """The integer fields of a verdict as lists."""
    fields = (got.tokens, got.num_accepted, got.num_emitted, got.status)
    return [backend.to_numpy(f).tolist() for f in fields]


def sparse(backend: Backend, ids: list[int], probabilities: list[float]) -> Sparse:
    """A sparse proposal of one place."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.array([[probabilities]]))
    return Sparse(backend.asarray(np.array([[ids]]), "int64"), backend.asarray(logs, "float32"))


def dense(backend: Backend, logits: list[float], stats: RowStats | None = None, **given: Any) -> Dense:
    """A dense proposal of one place."""
    return Dense(backend.asarray(np.array([[logits]]), "float32"), Sampling.of(1, temperature=0.7, **given), stats)


@pytest.mark.clause("OUT-1")
@pytest.mark.parametrize("longest", [0, 2])
def test_no_request_gives_an_empty_verdict(backend: Backend, longest: int) -> None:
    """B = 0 has shapes [0, K + 1] and [0]."""
    got = backend.verify(
        backend.asarray(np.zeros((0, longest + 1, 5)), "float32"),
        backend.asarray(np.zeros((0, longest)), "int64"),
        OneHot(),
        Padded(),
        Sampling.of(0, temperature=0.7),
        Stream.of([], []),
    )
    assert tuple(got.tokens.shape) == tuple(got.logprobs.shape) == (0, longest + 1)
    assert tuple(got.status.shape) == (0,)


@pytest.mark.clause("BON-1")
def test_no_drafts_is_plain_sampling(backend: Backend) -> None:
    """K = 0 emits one token of row 0."""
    assert verdict(backend, [[[-INF, 0.0]], [[0.0, -INF]]], [[], []]) == [[[1], [0]], [0, 0], [1, 1], [0, 0]]


@pytest.mark.clause("LAY-3")
@pytest.mark.parametrize("rows", [0, 1])
def test_a_request_without_rows_emits_nothing(backend: Backend, rows: int) -> None:
    """A ragged request of no row has no tokens and status OK, also when nobody owns one."""
    got = backend.verify(
        backend.asarray(np.zeros((rows, 3)), "float32"),
        backend.asarray(np.array([[1], [1]]), "int64"),
        OneHot(),
        Ragged(backend.asarray(np.array([0, 0, rows]), "int64")),
        Sampling.of(2, temperature=0.7),
        Stream.of([1, 1], [1, 1]),
    )
    tokens, accepted, emitted, status = host(backend, got)
    assert (tokens[0], accepted[0], emitted, status) == ([-1, -1], 0, [0, rows], [0, 0])


@pytest.mark.clause("STS-1", "STS-2", "STS-3")
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(
    ("bad", "bit"),
    [([NAN, 0.0], Status.NONFINITE), ([0.0, INF], Status.NONFINITE), ([-INF, -INF], Status.EMPTY_ROW)],
)
def test_a_needed_bad_row_stops_the_request(backend: Backend, temperature: float, bad: list[float], bit: int) -> None:
    """Drafts before a row without law are emitted; behind a rejection the same row has no influence."""
    good = [0.0, 9.0]
    needed = verdict(backend, [[good, bad, good]], [[1, 1]], temperature=temperature)
    assert needed == [[[1, -1, -1]], [1], [1], [bit]]
    unread = verdict(backend, [[good, bad, good]], [[0, 1]], temperature=temperature, coin=2**32 - 1)
    assert unread == [[[1, -1, -1]], [0], [1], [0]]


@pytest.mark.clause("LAY-2", "STS-4")
@pytest.mark.parametrize(("draft", "bit"), [(-1, 0), (-2, 8), (3, 8), (2**40, 8)])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_a_draft_that_is_none_ends_the_chain(backend: Backend, draft: int, bit: int, temperature: float) -> None:
    """-1 draws from p of its row; an id out of range does so too and is reported once reached."""
    rows = [[[-INF, 0.0, -INF], [-INF, -INF, 0.0], [NAN] * 3]]
    assert verdict(backend, rows, [[1, draft]], temperature=temperature) == [[[1, 2, -1]], [1], [2], [bit]]
    assert verdict(backend, rows, [[0, draft]], temperature=temperature) == [[[1, -1, -1]], [0], [1], [0]]


@pytest.mark.clause("PRP-5")
def test_a_proposal_that_is_no_law_is_demoted(backend: Backend) -> None:
    """q(x) = 0, sums away from 1, ids outside the vocabulary and bad dense rows judge as one-hot and say so."""
    rows = [[[0.0, 0.0, -INF], [0.0, -INF, -INF]]]
    wrong = [
        sparse(backend, [0, -1], [1.0, 1.0]),
        sparse(backend, [1, 0], [0.5, 0.502]),
        sparse(backend, [1, 0], [0.0, 1.0]),
        sparse(backend, [1, 0], [NAN, 0.5]),
        sparse(backend, [1, 3], [0.5, 0.5]),
        dense(backend, [0.0, NAN, 0.0]),
        dense(backend, [-INF] * 3),
        dense(backend, [3.0, 0.0, 0.0], top_k=1),
    ]
    for proposal in wrong:
        half = 2**31
        assert verdict(backend, rows, [[1]], proposal, coin=half - 1) == [[[1, 0]], [1], [2], [16]]
        assert verdict(backend, rows, [[1]], proposal, coin=half) == [[[0, -1]], [0], [1], [16]]
        assert verdict(backend, rows, [[1]], proposal, temperature=0.0)[3] == [0]


@pytest.mark.clause("PRP-2")
def test_repeated_sparse_ids_add_up(backend: Backend) -> None:
    """A token listed twice has the sum of both probabilities: here 1, so that U = 3/4 rejects p = 1/2."""
    rows = [[[0.0, 0.0, -INF], [0.0, -INF, -INF]]]
    twice = sparse(backend, [1, 1, -1], [0.5, 0.5, 1.0])
    assert verdict(backend, rows, [[1]], twice, coin=3 * 2**30) == [[[0, -1]], [0], [1], [0]]


@pytest.mark.clause("RES-2")
def test_a_residual_without_mass_falls_back(backend: Backend) -> None:
    """q slightly above p everywhere may reject with nothing left over: the token comes from p."""
    rows = [[[0.0, 0.0], [0.0, -INF]]]
    above = sparse(backend, [0, 1], [0.5003, 0.5003])
    fallen = [[[1, -1]], [0], [1], [int(Status.RESIDUAL_FALLBACK)]]
    assert verdict(backend, rows, [[0]], above, coin=2**32 - 1, integer=2**64 - 1) == fallen


@pytest.mark.clause("PRP-3", "PRP-7")
def test_given_statistics_are_believed(backend: Backend) -> None:
    """q is what the record says: a cut in the statistics counts although the parameters have no filter."""

    def column(value: float, dtype: str = "float64") -> Any:
        return backend.asarray(np.array([[value]]), dtype)

    only = RowStats(column(1.0), column(1.0), column(1.0), column(1, "int64"))
    rows = [[[0.0, 0.0, 0.0], [0.0, -INF, -INF]]]
    believed = verdict(backend, rows, [[1]], dense(backend, [0.0, 1.0, 1.0], only), coin=2**32 - 1)
    assert believed == [[[2, -1]], [0], [1], [0]]
    missing = verdict(backend, rows, [[2]], dense(backend, [0.0, 1.0, 1.0], only), coin=2**32 - 1)
    assert missing[3] == [int(Status.INVALID_PROPOSAL)]


@pytest.mark.clause("STS-1", "STS-2")
def test_sample_reports_rows_without_law(backend: Backend) -> None:
    """NaN, +inf (also where not allowed) and empty rows give token -1, log probability 0 and a status bit."""
    rows = np.array([[0.0, NAN], [INF, 0.0], [-INF, -INF], [0.0, 1.0], [2.0, NAN]])
    allowed = np.array([[3], [3], [3], [2], [1]], np.int32)
    for temperature in (0.0, 0.7):
        sampling = Sampling.of(5, temperature=temperature, allowed=backend.asarray(allowed, "int32"))
        draw = Stream.of([1] * 5, [1] * 5).draw(Domain.DRAFT)
        got = backend.sample(backend.asarray(rows, "float32"), sampling, draw)
        assert backend.to_numpy(got.tokens).tolist() == [-1, -1, -1, 1, -1]
        assert backend.to_numpy(got.status).tolist() == [1, 1, 2, 0, 1]
        assert backend.to_numpy(got.logprobs).tolist() == [0.0] * 5


@pytest.mark.clause("CAP-2")
def test_method_greedy_refuses_a_temperature(backend: Backend) -> None:
    """Method greedy judges without coins and refuses a request that is not greedy."""
    rows = backend.asarray(np.array([[[0.0, 1.0], [1.0, 0.0]]]), "float32")
    drafts = backend.asarray(np.array([[1]]), "int64")
    bare = Uniforms(backend.asarray(np.zeros((1, 2)), "uint64"))
    cold, warm = Sampling.of(1, temperature=0.0), Sampling.of(1, temperature=0.7)
    got = backend.verify(rows, drafts, OneHot(), Padded(), cold, bare, method="greedy")
    assert host(backend, got) == [[[1, 0]], [1], [2], [0]]
    with pytest.raises(ContractError, match="greedy"):
        backend.verify(rows, drafts, OneHot(), Padded(), warm, bare, method="greedy")
