"""All rows of one round: each processed with the text before it, drafts included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.contract import Array
from flashspec.decoding.processing.protocol import F64, I64, Change, Edit, Processor, Words, ban, in_range
from flashspec.errors import ContractError

States = tuple[Any, ...]
"""One state a processor."""


@attrs.frozen(eq=False)
class Row:
    """What happens to one row of logits. ``Row()`` leaves it as it is."""

    edits: tuple[Edit | None, ...] = ()
    """One a processor, in order."""
    allowed: Words | None = None
    """The packed mask of all processors together; None allows all."""
    masks: tuple[Words | None, ...] = ()
    """What the processors before each one allow."""
    draft: int | None = None
    """The draft between this row and the one before it; None in the first row of a request."""


@attrs.frozen(eq=False)
class Window:
    """The rows of one request in one round."""

    rows: tuple[Row, ...] = ()
    """``K + 1``; none where nothing is processed."""
    states: tuple[States, ...] = ((),)
    """Before row 0, row 1, ...; it ends behind the last draft that could be accepted."""

    @property
    def masked(self) -> bool:
        """Whether tokens are forbidden in row 0."""
        return bool(self.rows) and self.rows[0].allowed is not None


@attrs.frozen(eq=False)
class Whole:
    """A change of one whole row. See :class:`Edit`."""

    row: int
    change: Change
    closed: I64
    """Ids that earlier processors forbid."""
    draft: int | None
    """As in :class:`Row`."""


@attrs.frozen(eq=False)
class Changes:
    """Logits to change, of any rows, ``[N]`` each; no pair of row and id twice. See :class:`Edit`."""

    rows: I64
    ids: I64
    scale: F64
    add: F64
    wholes: tuple[Whole, ...] = ()
    """Other rows, ascending."""

    @property
    def empty(self) -> bool:
        """Whether nothing is changed."""
        return not self.ids.size and not self.wholes


@attrs.frozen(eq=False)
class Plan:
    """What happens to the logits of one forward."""

    stages: tuple[Changes, ...]
    """To be carried out one after the other."""
    allowed: npt.NDArray[np.int32] | None
    """``[R, ceil(V / 32)]`` for ``Sampling.allowed``; None allows all."""


def begin(processors: Sequence[Processor], prompt: Sequence[int]) -> States:
    """The states after the prompt."""
    return tuple(p.start(prompt) for p in processors)


def _advanced(processors: Sequence[Processor], states: States, token: int) -> States:
    return tuple(p.advance(s, token) for p, s in zip(processors, states, strict=True))


def _row(processors: Sequence[Processor], states: States, vocab: int, draft: int | None = None) -> Row:
    edits = tuple(p.edit(s, vocab) for p, s in zip(processors, states, strict=True))
    allowed: Words | None = None
    masks: list[Words | None] = []
    for processor, edit in zip(processors, edits, strict=True):
        masks.append(allowed)
        if edit is None:
            continue
        name = f"an id that {type(processor).__name__} names"
        in_range(edit.ids, vocab, name)
        allowed = _masked(allowed, edit, vocab, name)
    return Row(edits, allowed, tuple(masks), draft)


def _masked(allowed: Words | None, edit: Edit, vocab: int, name: str) -> Words | None:
    """The mask after one more edit."""
    if edit.allowed is not None:
        if edit.allowed.shape != (-(-vocab // 32),):
            raise ContractError(f"{name}: mask of shape {edit.allowed.shape}; allowed: {(-(-vocab // 32),)}")
        both = edit.allowed if allowed is None or edit.overrides else allowed & edit.allowed
        allowed = both.copy()
    if edit.banned.size:
        if allowed is None:
            allowed = np.full(-(-vocab // 32), 0xFFFFFFFF, np.uint32)
        ban(allowed, in_range(edit.banned, vocab, name))
    return allowed


def window(processors: Sequence[Processor], states: States, drafts: Sequence[int], vocab: int) -> Window:
    """The rows of a round: row ``j`` is processed with drafts ``0..j-1`` in its text.

    Rows behind a draft that is forbidden are never used, since its target probability is 0. They are
    left as they are, and no processor is told of that draft: a grammar has no state behind it.

    Raises:
        ContractError: a processor names an id outside the vocabulary.
    """
    rows, trail = [_row(processors, states, vocab)], [states]
    for draft in drafts:
        allowed = rows[-1].allowed
        if allowed is not None and not int(allowed[draft // 32]) >> draft % 32 & 1:
            break
        trail.append(_advanced(processors, trail[-1], draft))
        rows.append(_row(processors, trail[-1], vocab, draft))
    left = len(drafts) + 1 - len(rows)
    return Window((*rows, *[Row()] * left), tuple(trail))


def settle(processors: Sequence[Processor], held: Window, accepted: int, tokens: Sequence[int]) -> States:
    """The states after the committed tokens of a round, ``accepted`` of which were drafts."""
    done = min(accepted, len(tokens), len(held.states) - 1)
    states = held.states[done]
    for token in tokens[done:]:
        states = _advanced(processors, states, token)
    return states


def plan(rows: Sequence[Row], vocab: int) -> Plan:
    """The rows of one forward, of one request or of a batch in its layout, as few wide operations."""
    depth = max((len(row.edits) for row in rows), default=0)
    stages = [
        attrs.evolve(
            _stage([row.edits[k] if k < len(row.edits) else None for row in rows]), wholes=_wholes(rows, k, vocab)
        )
        for k in range(depth)
    ]
    allowed = None
    if any(row.allowed is not None for row in rows):
        every = np.full(-(-vocab // 32), 0xFFFFFFFF, np.uint32)
        masks = [every if row.allowed is None else row.allowed for row in rows]
        allowed = np.stack(masks).view(np.int32)
    return Plan(tuple(stage for stage in stages if not stage.empty), allowed)


def _wholes(rows: Sequence[Row], k: int, vocab: int) -> tuple[Whole, ...]:
    """What processor ``k`` of each row does to all of it."""
    found = []
    for place, row in enumerate(rows):
        edit = row.edits[k] if k < len(row.edits) else None
        if edit is not None and edit.change is not None:
            found.append(Whole(place, edit.change, _closed(row.masks[k], vocab), row.draft))
    return tuple(found)


def _closed(allowed: Words | None, vocab: int) -> I64:
    """The ids that a packed mask forbids."""
    if allowed is None:
        return np.empty(0, np.int64)
    bits = np.unpackbits(np.ascontiguousarray(allowed).view(np.uint8), bitorder="little")[:vocab]
    return np.flatnonzero(bits == 0)


def change_rows(flat: Array, wholes: Sequence[Whole], copy: Callable[[Array], Array]) -> None:
    """Carry out changes of whole rows of ``flat [R, V]`` in place, but for those behind a draft that cannot come."""
    left: set[int] = set()
    for whole in wholes:
        before = whole.row - 1
        if whole.draft is not None and (before in left or float(flat[before, whole.draft]) == -np.inf):
            left.add(whole.row)
            continue
        row = copy(flat[whole.row])
        row[whole.closed] = -np.inf
        flat[whole.row] = whole.change(row)


def _stage(edits: Sequence[Edit | None]) -> Changes:
    """One processor's changes of all rows."""
    found = [(row, edit) for row, edit in enumerate(edits) if edit is not None]
    sizes = [edit.ids.size for _, edit in found]
    ids = [edit.ids for _, edit in found]
    scale = [np.ones(edit.ids.shape) if edit.scale is None else edit.scale for _, edit in found]
    add = [np.zeros(edit.ids.shape) if edit.add is None else edit.add for _, edit in found]
    return Changes(
        np.repeat(np.array([row for row, _ in found], np.int64), sizes),
        np.concatenate(ids) if ids else np.empty(0, np.int64),
        np.concatenate(scale) if scale else np.empty(0),
        np.concatenate(add) if add else np.empty(0),
    )
