"""Hypothesis strategies: shapes and choices are drawn, contents follow from a drawn seed.

Contents come from a seeded generator because a shrunk logit says no more than a random one, while
a small shape says a lot. The spec reckons with rationals and is slow, so that many requests, long
chains and wide rows are drawn in turn, not all three at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from flashspec.contract import NO_TOKEN, TILE, Dense, Mixed
from flashspec_conformance import generate
from flashspec_conformance.build import Call
from flashspec_conformance.case import F64, Case, Request
from flashspec_conformance.subject import DTYPES, Subject

VOCABULARIES = (1, 2, 3, 5, 8, 31, 32, 33, 65)
"""Narrow ones, of which whole rows are drawn."""
EXAMPLES = 120
"""Calls per property unless it says otherwise."""
EDGES = (TILE - 1, TILE, TILE + 1, 2 * TILE - 1, 2 * TILE, 2 * TILE + 1, 8 * TILE + 1, 32_000, 128_256, 151_936)
"""Vocabularies at edges of tiles, and those of widespread models."""
LIVE = 12
"""Tokens of finite logit in a wide row."""
VIEWS = ("cut", "offset", "interleaved")
Shape = tuple[int, int, int]
SHAPES: st.SearchStrategy[Shape] = st.one_of(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from(VOCABULARIES)),
    st.tuples(st.integers(0, 64), st.integers(0, 2), st.sampled_from(VOCABULARIES[:5])),
    st.tuples(st.integers(0, 3), st.integers(0, 16), st.sampled_from(VOCABULARIES[:8])),
)
"""``(B, K, V)``."""


def fixed(examples: int = EXAMPLES) -> settings:
    """Settings of a property: the same examples in every run, no deadline, no database, one error told."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def cases(subject: Subject, method: str, layout: str) -> st.SearchStrategy[Case]:
    """Calls over everything that the backend declares: up to 64 requests, up to 16 drafts, awkward drafts anywhere."""
    return st.builds(
        lambda shape, dtype, seed: _case(subject, method, shape, dtype, layout, seed),
        SHAPES,
        st.sampled_from(subject.values(DTYPES, "dtype")),
        st.integers(0, 2**32 - 1),
    )


def _case(subject: Subject, method: str, shape: Shape, dtype: str, layout: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    case = generate.case(rng, subject, shape, dtype, layout)
    return in_method(attrs.evolve(case, requests=tuple(awkward(rng, r, shape[2]) for r in case.requests)), method)


def in_method(case: Case, method: str) -> Case:
    """The case under a method; ``greedy`` wants temperature 0 everywhere."""
    if method != "greedy":
        return attrs.evolve(case, method=method)
    cold = tuple(attrs.evolve(r, knobs=attrs.evolve(r.knobs, temperature=0.0)) for r in case.requests)
    return attrs.evolve(case, requests=cold, method=method)


def awkward(rng: np.random.Generator, request: Request, vocab: int) -> Request:
    """The request with a -1 or an id outside the vocabulary at some place, one time in four."""
    if not request.drafts or rng.random() > 0.25:
        return request
    drafts = list(request.drafts)
    drafts[int(rng.integers(len(drafts)))] = int(rng.choice([NO_TOKEN, NO_TOKEN, vocab, vocab + 77, 2**31 - 1, -2]))
    return attrs.evolve(request, drafts=tuple(drafts))


def wide_cases(subject: Subject, method: str, layout: str) -> st.SearchStrategy[Case]:
    """Calls with wide rows of few live tokens, most of them at edges of tiles and at both ends."""
    return st.builds(
        lambda batch, width, vocab, dtype, seed: wide_case(subject, method, (batch, width, vocab), dtype, layout, seed),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from(EDGES),
        st.sampled_from(subject.values(DTYPES, "dtype")),
        st.integers(0, 2**32 - 1),
    )


def wide_case(subject: Subject, method: str, shape: Shape, dtype: str, layout: str, seed: int) -> Case:
    """A call of few live tokens in wide rows: that of a narrow one, spread over the vocabulary."""
    rng = np.random.default_rng(seed)
    batch, width, vocab = shape
    narrow = generate.case(rng, subject, (batch, width, LIVE), dtype, layout)
    at = live_ids(rng, vocab)
    requests = tuple(awkward(rng, spread(r, at, vocab), vocab) for r in narrow.requests)
    return in_method(attrs.evolve(narrow, requests=requests, vocab=vocab), method)


def live_ids(rng: np.random.Generator, vocab: int) -> Any:
    """``LIVE`` ids in order: ends, neighbours of tile edges, and any."""
    tiles = rng.integers(0, -(-vocab // TILE), 4) * TILE
    near = np.clip(np.concatenate([[0, vocab - 1], tiles, tiles - 1]), 0, vocab - 1)
    chosen = np.unique(near)[:LIVE]
    others = np.setdiff1d(rng.permutation(vocab)[: 4 * LIVE], chosen)
    return np.sort(np.concatenate([chosen, others[: LIVE - len(chosen)]]))


def spread(request: Request, at: Any, vocab: int) -> Request:
    """A request over ``LIVE`` tokens as one over ``vocab``: token i becomes token ``at[i]``, all others ``-inf``."""

    def wide(rows: F64 | None) -> F64 | None:
        if rows is None:
            return None
        out = np.full((rows.shape[0], vocab), -np.inf)
        out[:, at] = rows
        return out

    def mask(allowed: Any) -> Any:
        if allowed is None:
            return None
        out = np.ones((allowed.shape[0], vocab), np.bool_)
        out[:, at] = allowed
        return out

    ids = request.sparse_ids
    rows = wide(request.rows)
    assert rows is not None
    return attrs.evolve(
        request,
        rows=rows,
        drafts=tuple(int(at[x]) if 0 <= x < LIVE else x for x in request.drafts),
        allowed=mask(request.allowed),
        sparse_ids=None if ids is None else np.where(ids >= 0, at[ids], NO_TOKEN),
        dense_logits=wide(request.dense_logits),
        dense_allowed=mask(request.dense_allowed),
    )


def views() -> st.SearchStrategy[str]:
    """How the logits of a call lie in memory."""
    return st.sampled_from(VIEWS)


def viewed(subject: Subject, case: Case, call: Call, view: str) -> Call:
    """The call with its logits, the target's and those of dense drafts, as views into larger arrays of poison."""

    def lay(array: Any) -> Any:
        values = np.asarray(subject.get(array), np.float64)
        *front, vocab = values.shape
        if view == "interleaved":
            wide = np.full((2 * front[0], *front[1:], vocab), np.nan)
            wide[::2] = values
            return subject.put(wide, case.dtype)[::2, ...]
        before, after = (0, 7) if view == "cut" else (3, 0)
        wide = np.full((*front, before + vocab + after), np.nan)
        wide[..., before : before + vocab] = values
        return subject.put(wide, case.dtype)[..., before : before + vocab]

    proposal = call.proposal
    if isinstance(proposal, Dense):
        proposal = attrs.evolve(proposal, logits=lay(proposal.logits))
    elif isinstance(proposal, Mixed) and proposal.dense is not None:
        dense = attrs.evolve(proposal.dense, logits=lay(proposal.dense.logits))
        proposal = attrs.evolve(proposal, dense=dense)
    return attrs.evolve(call, target_logits=lay(call.target_logits), proposal=proposal)


def rows(subject: Subject) -> st.SearchStrategy[tuple[Callable[[], np.random.Generator], int, int, str]]:
    """``(generator, B, V, dtype)`` for plain sampling."""
    return st.tuples(
        st.integers(0, 2**32 - 1).map(lambda seed: lambda: np.random.default_rng(seed)),
        st.integers(0, 8),
        st.sampled_from(VOCABULARIES),
        st.sampled_from(subject.values(DTYPES, "dtype")),
    )
