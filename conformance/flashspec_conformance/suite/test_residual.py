"""What follows the accepted run: clauses RES and BON."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec_conformance.case import Case, Knobs
from flashspec_conformance.compare import check
from flashspec_conformance.probes import LAST, LAST_COIN, coin, flat, integer, log_row, request, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

UNIFORMS = (0.003, 0.107, 0.311, 0.511, 0.711, 0.907)
P = log_row([0.35, 0.35, 0.25, 0.05])
Q = log_row([0.30, 0.02, 0.03, 0.65])
TABLES: dict[str, dict[str, Any]] = {
    "onehot": {},
    "sparse": {"sparse_ids": np.array([[0, 1, 2, 3]]), "sparse_logprobs": Q[None]},
    "dense": {"dense_logits": Q[None], "dense_knobs": Knobs(1.0)},
}


def _dtype(subject: Subject) -> str:
    return "float32" if subject.declares("dtype:float32") else subject.dtype


@pytest.mark.clause("RES-1", "BON-2")
@pytest.mark.parametrize("u", UNIFORMS)
@pytest.mark.parametrize("draft", [0, 1, 2, 3])
def test_a_rejection_draws_from_the_residual(subject: Subject, kind: str, draft: int, u: float) -> None:
    """The token comes from [p - q]+, never from p, softmax of it, |p - q| or [q - p]+."""
    case = single(
        [P, flat(4, 0)],
        (draft,),
        kind=kind,
        coins=(LAST_COIN,),
        integers=(integer(u), 0),
        dtype=_dtype(subject),
        **TABLES[kind],
    )
    check(subject, case)


@pytest.mark.clause("RES-1", "ACC-3")
@pytest.mark.parametrize("rejected", [0, 1, 2])
def test_the_residual_is_that_of_the_rejected_row(subject: Subject, kind: str, rejected: int) -> None:
    """Row j's own p and q make the residual, not row 0's and not the next row's."""
    rows = log_row([[0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.3, 0.2], [0.2, 0.4, 0.1, 0.3], [0.3, 0.3, 0.3, 0.1]])
    q = log_row([[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.2, 0.3], [0.3, 0.1, 0.4, 0.2]])
    tables: dict[str, dict[str, Any]] = {
        "onehot": {},
        "sparse": {"sparse_ids": np.tile(np.arange(4), (3, 1)), "sparse_logprobs": q},
        "dense": {"dense_logits": q},
    }
    own = tables[kind]
    drafts = (0, 1, 2)
    coins = tuple(LAST_COIN if j == rejected else 0 for j in range(3))
    judged = [
        request(rows, drafts, kind=kind, coins=coins, integers=(integer(u),) * 4, **own)
        for u in (0.151, 0.353, 0.557, 0.757, 0.953)
    ]
    got = check(subject, Case(tuple(judged), 4, _dtype(subject)))
    assert set(got.num_accepted.tolist()) == {rejected}


@pytest.mark.clause("RES-1", "PRP-1")
@pytest.mark.parametrize("u", UNIFORMS)
def test_a_rejected_one_hot_draft_is_never_drawn_again(subject: Subject, u: float) -> None:
    """The residual of a one-hot draft is p without it."""
    case = single([P, P], (0,), coins=(LAST_COIN,), integers=(integer(u), 0), dtype=_dtype(subject))
    assert check(subject, case).tokens[0, 0] != 0


@pytest.mark.clause("RES-2")
@pytest.mark.needs("proposal:sparse")
@pytest.mark.parametrize(("u", "token"), [(0.2, 1), (0.8, 3)])
def test_a_residual_without_mass_draws_from_the_target(subject: Subject, u: float, token: int) -> None:
    """Where q covers p (a recorded q a little above 1), a rejection falls back to p and says so."""
    row = flat(5, 1, 3)
    inflated = np.full((1, 2), np.float64(np.float32(np.log(0.5 * 1.0008))))
    case = single(
        [row, row],
        (1,),
        kind="sparse",
        sparse_ids=np.array([[1, 3]]),
        sparse_logprobs=inflated,
        coins=(LAST_COIN,),
        integers=(integer(u), 0),
        knobs=Knobs(0.7),
        dtype=subject.dtype,
    )
    got = check(subject, case)
    assert (got.tokens[0, 0], got.status[0]) == (token, 4)


@pytest.mark.clause("BON-1", "BON-2", "OUT-1")
@pytest.mark.parametrize("gamma", [0, 1, 2, 8])
@pytest.mark.parametrize("u", UNIFORMS)
def test_the_bonus_comes_from_the_row_after_the_last_draft(subject: Subject, layout: str, gamma: int, u: float) -> None:
    """After gamma accepted drafts the token is drawn from row gamma's own law, with the integer of place gamma."""
    rng = np.random.default_rng(gamma)
    rows = log_row(rng.dirichlet(np.ones(6), gamma + 1))
    drafts = tuple(int(x) for x in np.argmax(rows[:gamma], axis=1))
    integers = (*(integer(1 - u),) * gamma, integer(u))
    case = single(
        rows,
        drafts,
        coins=(0,) * gamma,
        integers=tuple(min(i, LAST) for i in integers),
        layout=layout,
        dtype=_dtype(subject),
    )
    assert check(subject, case).num_emitted.tolist() == [gamma + 1]


@pytest.mark.clause("BON-2", "OUT-1")
def test_no_bonus_follows_a_rejection(subject: Subject, kind: str) -> None:
    """A rejection at the last draft emits the residual token and nothing else."""
    case = single([P, flat(4, 3)], (3,), kind=kind, coins=(LAST_COIN,), width=1, dtype=_dtype(subject), **TABLES[kind])
    got = check(subject, case)
    assert got.tokens[0, 1] == -1


@pytest.mark.clause("BON-1", "LAY-2")
@pytest.mark.parametrize("u", UNIFORMS)
def test_a_chain_that_ends_early_draws_from_the_target(subject: Subject, kind: str, u: float) -> None:
    """A missing draft is not a rejection: the token comes from p, not from a residual."""
    own = {k: np.repeat(v, 2, axis=0) if isinstance(v, np.ndarray) else v for k, v in TABLES[kind].items()}
    base = request([P, P, flat(4, 1)], (0, -1), kind=kind, coins=(coin(0.01), 0), integers=(0, integer(u), LAST), **own)
    first = attrs.evolve(base, drafts=(-1, 0), integers=(integer(u), LAST, LAST))
    got = check(subject, Case((base, first), 4, _dtype(subject)))
    assert got.num_emitted.tolist() == [2, 1]
