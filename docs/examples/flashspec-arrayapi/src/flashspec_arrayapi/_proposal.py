"""The draft laws q of a call, ``[B, K, V]``, of whichever kinds its requests have."""

from __future__ import annotations

import attrs
from flashspec.contract import KIND_DENSE, KIND_SPARSE, Dense, Mixed, OneHot, Proposal, Sparse

from flashspec_arrayapi._law import Laws, knobs, laws, recorded, unpack
from flashspec_arrayapi._namespace import Array, adopt, column, ids, pick, xp

_SLACK = 1e-3
"""How far the listed probabilities of a sparse row may sum from 1."""


@attrs.frozen(eq=False)
class Proposed:
    """q and, ``[B, K]``, its log at the draft, and where it had to be replaced by a point mass."""

    q: Array
    log_q: Array
    invalid: Array


def proposed(proposal: Proposal, drafts: Array, vocab: int) -> Proposed:
    """q at every place; ``drafts [B, K]`` lie in ``[0, V)`` (elsewhere anything will do)."""
    # implements: PRP-1, PRP-6
    point = xp.astype(drafts[..., None] == ids(vocab), xp.float64)
    sure = xp.zeros(drafts.shape, dtype=xp.float64)
    found = Proposed(point, sure, sure > 0)
    if isinstance(proposal, OneHot):
        return found
    everyone = xp.ones((drafts.shape[0], 1), dtype=xp.bool)
    for kind, table in _tables(proposal):
        mine = everyone if kind is None else kind[:, None]
        other = _sparse(table, drafts, vocab) if isinstance(table, Sparse) else _dense(table, drafts)
        found = _merged(found, other, mine, point)
    return found


def _tables(proposal: Proposal) -> list[tuple[Array | None, Sparse | Dense]]:
    """The tables of a proposal, each with the requests ``[B]`` that it serves (None: all of them)."""
    if isinstance(proposal, Sparse | Dense):
        return [(None, proposal)]
    assert isinstance(proposal, Mixed)
    kind = adopt(proposal.kind, xp.int64)
    both = ((kind == KIND_SPARSE, proposal.sparse), (kind == KIND_DENSE, proposal.dense))
    return [(mine, table) for mine, table in both if table is not None]


def _merged(old: Proposed, new: Proposed, mine: Array, point: Array) -> Proposed:
    """``new`` for the requests that it serves, and a point mass where it is no law or misses the draft."""
    # implements: PRP-5
    good = mine & ~new.invalid
    q = xp.where(good[..., None], new.q, xp.where(mine[..., None], point, old.q))
    log_q = xp.where(good, new.log_q, xp.where(mine, 0.0, old.log_q))
    return Proposed(q, log_q, xp.where(mine, new.invalid, old.invalid))


def _sparse(sparse: Sparse, drafts: Array, vocab: int) -> Proposed:
    # implements: PRP-2
    listed, logs = adopt(sparse.ids, xp.int64), adopt(sparse.logprobs, xp.float64)
    used = listed != -1
    number = xp.where(used & (logs < 1.0), logs, -xp.inf)
    masses = xp.exp(number)
    wild = used & (xp.isnan(logs) | (logs >= 1.0) | (listed < 0) | (listed >= vocab))
    q = xp.zeros((*drafts.shape, vocab), dtype=xp.float64)
    for s in range(listed.shape[2]):
        q = q + xp.where(listed[..., s : s + 1] == ids(vocab), masses[..., s : s + 1], 0.0)
    at_draft = xp.max(xp.where(listed == drafts[..., None], number, -xp.inf), axis=-1) if listed.shape[2] else None
    log_q = xp.full(drafts.shape, -xp.inf, dtype=xp.float64) if at_draft is None else at_draft
    near = xp.abs(xp.sum(masses, axis=-1) - 1.0) <= _SLACK
    return _checked(q, log_q, near & ~xp.any(wild, axis=-1))


def _dense(dense: Dense, drafts: Array) -> Proposed:
    # implements: PRP-3, PRP-4
    batch, longest, vocab = dense.logits.shape
    words = dense.sampling.allowed
    allowed = None if words is None else unpack(xp.reshape(words, (batch, longest, words.shape[1])), vocab)
    given = knobs(dense.sampling, allowed)
    if dense.stats is None:
        found: Laws = laws(dense.logits, given)
    else:
        s = dense.stats
        top, mass, cut = (adopt(v, xp.float64) for v in (s.max, s.mass, s.cut_logit))
        found = recorded(dense.logits, given, top, mass, cut, adopt(s.cut_id, xp.int64))
    greedy = given.temperature[:, None] == 0
    point = xp.astype(drafts[..., None] == ids(vocab), xp.float64)
    q = xp.where(column(given.temperature) == 0, point, found.probabilities)
    log_q = xp.where(greedy, 0.0, pick(found.logs, drafts))
    return _checked(q, log_q, greedy | found.lawful)


def _checked(q: Array, log_q: Array, lawful: Array) -> Proposed:
    good = lawful & (log_q > -xp.inf)
    return Proposed(q, xp.where(good, log_q, 0.0), ~good)
