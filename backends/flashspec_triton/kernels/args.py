"""What kernels are given: named groups of pointers."""

from __future__ import annotations

from typing import Any, NamedTuple


class Target(NamedTuple):
    """Target rows, who owns them, and the statistics of their tiles (one set per request and place)."""

    logits: Any
    allowed: Any
    cu_rows: Any
    temperature: Any
    slots: Any
    """``[B]`` int64: where each request's temperature is; read only with ``SLOTTED``."""
    tile_max: Any
    """``[B, K + 1, tiles]`` float32: the largest logit of a tile; of its row, once filters have cut it."""
    tile_sum: Any
    """``[B, K + 1, tiles]`` float32: sum of ``exp((L - tile_max) / T)``, of kept tokens once filters have cut the row;
    NaN where a tile holds NaN or +inf."""


class Noise(NamedTuple):
    """Explicit integers, or the words of each request's stream; ``seed`` and ``sequence`` are in its slot."""

    accept: Any
    sampling: Any
    seed: Any
    position: Any
    sequence: Any
    slots: Any


class Draft(NamedTuple):
    """Drafts and the laws they came from."""

    tokens: Any
    kind: Any
    ids: Any
    logprobs: Any
    logits: Any
    allowed: Any
    temperature: Any
    max: Any
    mass: Any
    cut_logit: Any
    cut_id: Any
    slots: Any
    """``[B]`` int64: where each request's dense rows, their temperature and statistics are."""


class Out(NamedTuple):
    """The arrays of a verdict."""

    tokens: Any
    logprobs: Any
    accepted: Any
    emitted: Any
    status: Any


class Laws(NamedTuple):
    """Statistics of rows, as ``RowStats``: float64 but for ``cut_id`` int64."""

    max: Any
    mass: Any
    cut_logit: Any
    cut_id: Any


class Knobs(NamedTuple):
    """Filters of each request."""

    top_k: Any
    top_p: Any
    min_p: Any


class Short(NamedTuple):
    """Candidates for each row's cut: one list a row."""

    sub_max: Any
    """``[rows, 4 * tiles]`` float32: the largest logit of every 256 tokens."""
    low: Any
    """``[rows]`` float32: no kept token is below; +inf where the cut is known."""
    logit: Any
    id: Any


class Pending(NamedTuple):
    """Requests whose last token needs another pass over rows; each has one slot, or one for every row."""

    head: Any
    """``[B, 2]`` int32: 0 nothing to do, 1 draw from slot 0, 2 decide first; place reached."""
    place: Any
    """``[B, slots, 4]`` int32: row, mode (-1: not needed), draft, a flag of the method."""
    number: Any
    """``[B, slots, 5]`` float64: max, mass, uniform, ``P`` of the block rule, coin."""
    left: Any
    """``[B, slots, tiles]`` float32: residual mass of each tile."""
