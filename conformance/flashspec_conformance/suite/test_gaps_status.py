"""Several things wrong at once, and what is and is not a law."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance.build import record_dtype
from flashspec_conformance.case import F64, Case, HostVerdict, Knobs, Request
from flashspec_conformance.compare import TOLERANCE, check
from flashspec_conformance.oracle import row_law
from flashspec_conformance.probes import HOT, LAST_COIN, WARM, batch, coin, flat, integer, request, single
from flashspec_conformance.subject import Subject

COLD = Knobs(0.0)
READING = tuple(pytest.param(m, marks=pytest.mark.needs(f"method:{m}")) for m in ("token", "block"))
"""The methods that read proposals."""
reading = pytest.mark.parametrize("method", READING)


def _logs(*probabilities: float) -> F64:
    return np.log(np.array(probabilities, np.float32)).astype(np.float32).astype(np.float64)


def _chain(vocab: int, *faults: str) -> Request:
    """Sparse drafts, one a fault: a certain one, one that is not listed, or one whose q covers p; then a row."""
    low, high = vocab // 3, vocab - 2
    first = flat(vocab, 0)
    covered = flat(vocab, low, high)
    covered[[low, high]] = np.log(1e-3), np.log(0.999)
    tables: dict[str, tuple[F64, int, list[int], F64]] = {
        "sound": (first, 0, [0, -1], _logs(1.0, 1.0)),
        "unlisted": (first, 0, [low, -1], _logs(1.0, 1.0)),
        "covered": (covered, low, [low, high], _logs(1.9e-3, 0.99905)),
    }
    rows, drafts, ids, logs = zip(*(tables[fault] for fault in faults), strict=True)
    return request(
        np.stack([*rows, flat(vocab, 1)]),
        drafts,
        kind="sparse",
        sparse_ids=np.array(ids),
        sparse_logprobs=np.stack(logs),
        coins=tuple(coin(0.8) for _ in faults),
        integers=tuple(integer(0.4) for _ in (*faults, "")),
        knobs=Knobs(1.0),
    )


def _exact(subject: Subject, case: Case) -> HostVerdict:
    """The verdict. A block goes on behind a prefix without a residual only if P = 1, which is exact here."""
    return check(subject, case, exact=case.method == "block")


def _judge(subject: Subject, method: str, *judged: Request, layout: str = "padded") -> list[int]:
    case = batch(*judged, dtype=record_dtype(subject), layout=layout, method=method)
    return [int(s) for s in _exact(subject, case).status]


@pytest.mark.clause("PRP-5", "STS-1", "STS-2", "STS-4", "RES-2", "BLK-2", "BLK-3")
@reading
@pytest.mark.needs("proposal:sparse")
def test_a_status_has_all_its_bits(subject: Subject, layout: str, method: str) -> None:
    """An invalid proposal and a row without a law, an id out of range or an empty residual behind it are both told."""
    chain = _chain(9, "unlisted", "sound")
    rows = {bit: chain.rows.copy() for bit in (1, 2)}
    rows[1][2, 4], rows[2][2] = np.nan, -np.inf
    judged = [
        attrs.evolve(chain, rows=rows[1]),
        attrs.evolve(chain, rows=rows[2]),
        attrs.evolve(chain, drafts=(0, 9)),
        _chain(9, "unlisted", "covered"),
    ]
    assert _judge(subject, method, *judged, layout=layout) == [17, 18, 24, 20]


@pytest.mark.clause("BLK-3", "BLK-2")
@pytest.mark.needs("method:block", "proposal:sparse")
def test_a_block_tells_of_its_end_and_of_its_residual(subject: Subject) -> None:
    """An empty residual at the first place, an invalid proposal and an id out of range behind it."""
    chain = _chain(9, "covered", "sound", "unlisted")
    judged = [attrs.evolve(chain, drafts=(chain.drafts[0], 77, 0)), attrs.evolve(chain, drafts=(*chain.drafts[:2], 0))]
    assert _judge(subject, "block", *judged) == [12, 20]


@pytest.mark.clause("RES-2", "BLK-2")
@reading
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize("vocab", [9, 1500])
@pytest.mark.parametrize("place", [1, 2])
def test_an_empty_residual_may_come_later(subject: Subject, method: str, layout: str, place: int, vocab: int) -> None:
    """The token is drawn from p of its own row with the integer of its own place."""
    chain = _chain(vocab, *(["sound"] * place), "covered", "sound")
    judged = []
    for u in (0.0004, 0.0016, 0.5):
        integers = tuple(integer(u if j == place else 1 - u) for j in range(place + 3))
        judged.append(attrs.evolve(chain, integers=integers))
    assert _judge(subject, method, *judged, layout=layout) == [4, 4, 4]


@pytest.mark.clause("RES-2", "BLK-2", "RNG-3")
@reading
@pytest.mark.needs("proposal:sparse")
def test_an_empty_residual_reads_the_residual_domain(subject: Subject, method: str) -> None:
    """Under a stream the draw from p after a rejection is no bonus."""
    chain = _chain(9, "sound", "covered")
    rows = chain.rows.copy()
    rows[1] = np.log([1e-4, *[0.9999 / 8] * 8])
    ids, logs = np.tile(np.arange(9), (2, 1)), np.tile(_logs(4e-4, *[1.0004 / 8] * 8), (2, 1))
    logs[0] = np.where(np.arange(9) == 0, 0.0, -np.inf)
    spread = attrs.evolve(chain, rows=rows, drafts=(0, 0), sparse_ids=ids, sparse_logprobs=logs)
    judged = tuple(attrs.evolve(spread, seed=seed, position=3, sequence=seed) for seed in range(24))
    case = batch(*judged, dtype=record_dtype(subject), method=method, stream=True)
    assert (_exact(subject, case).status == 4).sum() > 6


@pytest.mark.clause("STS-1", "STS-2")
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_row_of_nothing_but_nan_is_not_empty(subject: Subject, temperature: float) -> None:
    """A NaN is told, not the lack of tokens beside it, with a mask that allows none too."""
    knobs = Knobs(temperature if subject.warm_methods else 0.0)
    judged = [request(np.array([row]), knobs=knobs) for row in ([-np.inf, np.nan, -np.inf], [np.nan] * 3)]
    if subject.declares("filter:allowed"):
        judged.append(attrs.evolve(judged[0], allowed=np.zeros((1, 3), np.bool_)))
    got = check(subject, batch(*judged, dtype=subject.dtype, method=subject.method))
    assert set(got.status.tolist()) == {1}


@pytest.mark.clause("PRP-5")
@pytest.mark.needs("proposal:sparse", "method:token")
@pytest.mark.parametrize(("total", "bit"), [(0.998, 16), (0.9993, 0), (1.0, 0), (1.0007, 0), (1.002, 16)])
def test_probabilities_sum_to_one_within_a_thousandth(subject: Subject, total: float, bit: int) -> None:
    """A row inside the tolerance is taken as it was recorded, not renormalised; outside it is judged as one-hot."""
    row = np.array([0.75, 0.25, 0.5, 1.0])
    q = total * np.array([0.125, 0.25, 0.5, 0.125])
    ratio = float(row_law(row, HOT)[2]) / float(np.exp(_logs(*q)[2]))
    own: dict[str, Any] = {"kind": "sparse", "sparse_ids": np.arange(4)[None], "sparse_logprobs": _logs(*q)[None]}
    coins = (0.1, ratio * (1 - 9 * TOLERANCE), ratio * (1 + 9 * TOLERANCE), 0.97)
    judged = [request([row, row], (2,), coins=(coin(u),), integers=(integer(0.4), 0), knobs=HOT, **own) for u in coins]
    got = check(subject, batch(*judged, dtype=record_dtype(subject)))
    assert set(got.status.tolist()) == {bit}


@pytest.mark.clause("PRP-5", "PRP-3")
@pytest.mark.needs("proposal:dense", "filter:allowed", "method:token")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_draft_row_is_no_law_if_a_token_that_is_not_allowed_is_nan(subject: Subject, value: float) -> None:
    """What holds for rows of the target holds for rows of the drafter."""
    row = np.array([0.5, 0.25, 0.0])
    case = single(
        [row, row],
        (0,),
        kind="dense",
        dense_logits=np.array([[0.0, value, 1.0]]),
        dense_allowed=np.array([[True, False, True]]),
        coins=(coin(0.35),),
        knobs=WARM,
        dtype=subject.dtype,
    )
    assert check(subject, case).status.tolist() == [16]


@pytest.mark.clause("PRP-4")
@pytest.mark.needs("proposal:dense", "method:token")
def test_the_logits_of_a_greedy_drafter_are_not_read(subject: Subject) -> None:
    """They may hold NaN, and another argmax than the draft: q is a point mass all the same."""
    row = np.array([0.5, 0.25, 0.0])
    judged = [
        request([row, row], (0,), kind="dense", dense_logits=np.array([q]), dense_knobs=COLD, coins=(c,), knobs=WARM)
        for q in ([0.0, np.nan, 1.0], [0.0, 3.0, 0.0], [-np.inf] * 3)
        for c in (coin(0.2), LAST_COIN)
    ]
    got = check(subject, batch(*judged, dtype=subject.dtype))
    assert set(got.status.tolist()) == {0}
