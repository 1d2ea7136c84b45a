"""One ``verify`` call laid out as ``[B, n, V]``, whatever its layout was."""

from __future__ import annotations

import attrs
from flashspec.contract import Layout, Proposal, Ragged, Sampling, Stream, Uniforms

from flashspec_arrayapi._law import Laws, knobs, laws, unpack
from flashspec_arrayapi._namespace import Array, adopt, pick, true_run, xp
from flashspec_arrayapi._proposal import Proposed, proposed
from flashspec_arrayapi._random import Numbers, numbers


@attrs.frozen(eq=False)
class Call:
    """What the methods read. ``K`` is the width of ``drafts``; rows behind a request's own are junk."""

    rows: Array
    """``[B]``: how many target rows each request owns."""
    target: Laws
    """``[B, K + 1, ...]``."""
    drafts: Array
    """``[B, K]`` in ``[0, V)``; 0 where ``judged`` is false."""
    judged: Array
    """``[B, K]``: there is a row for the draft, it is not -1, and in range."""
    wild: Array
    """``[B, K]``: there is a row for the draft, and it is out of range."""
    log_p: Array
    """``[B, K]``: the target's log probability of the draft."""
    proposed: Proposed
    numbers: Numbers
    greedy: Array
    """``[B]``: temperature 0."""


def lay_out(
    logits: Array,
    drafts: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    randomness: Stream | Uniforms,
) -> Call:
    """Gather the rows, compute all laws, and say which drafts are there to be judged."""
    # implements: LAY-1, LAY-2
    batch, longest = drafts.shape
    vocab = logits.shape[-1]
    places, owned = _places(layout, batch, longest)
    words = sampling.allowed
    allowed = None if words is None else unpack(_gather(words, places), vocab)
    rows = _gather(xp.reshape(logits, (logits.size // vocab, vocab)), places)
    target = laws(rows, knobs(sampling, allowed))
    drafts = xp.astype(drafts, xp.int64)
    there = xp.arange(longest, dtype=xp.int64) < owned[:, None] - 1
    inside = (drafts >= 0) & (drafts < vocab)
    judged = there & inside
    safe = xp.where(judged, drafts, 0)
    return Call(
        owned,
        target,
        safe,
        judged,
        there & ~inside & (drafts != -1),
        pick(target.logs[:, :longest, :], safe),
        proposed(proposal, safe, vocab),
        numbers(randomness, longest),
        adopt(sampling.temperature, xp.float64) == 0,
    )


def _places(layout: Layout, batch: int, longest: int) -> tuple[Array, Array]:
    """Where the rows of each request lie, ``[B, K + 1]``, and how many it owns, ``[B]``."""
    steps = xp.arange(longest + 1, dtype=xp.int64)
    if isinstance(layout, Ragged):
        edges = adopt(layout.cu_rows, xp.int64)
        return edges[:-1, None] + steps, edges[1:] - edges[:-1]
    starts = xp.arange(batch, dtype=xp.int64) * (longest + 1)
    return starts[:, None] + steps, xp.full((batch,), longest + 1, dtype=xp.int64)


def _gather(table: Array, places: Array) -> Array:
    """Rows of ``table [R, n]``, shape ``[B, K + 1, n]``; behind the end there is some row, or zeros."""
    total, width = table.shape
    if total == 0:
        return xp.zeros((*places.shape, width), dtype=table.dtype)
    flat = xp.reshape(xp.minimum(places, xp.asarray(total - 1)), (-1,))
    return xp.reshape(xp.take(table, flat, axis=0), (*places.shape, width))


def reached(call: Call, passed: Array) -> Array:
    """``[B]``: the leading run of judged drafts of lawful rows that ``passed [B, K]``."""
    longest = call.drafts.shape[1]
    return true_run(passed & call.judged & call.target.lawful[:, :longest])
