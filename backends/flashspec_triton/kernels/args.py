"""What kernels are given: named groups of pointers."""

from __future__ import annotations

from typing import Any, NamedTuple


class Target(NamedTuple):
    """Target rows, who owns them, and the statistics of their tiles (one set per request and place)."""

    logits: Any
    allowed: Any
    cu_rows: Any
    temperature: Any
    tile_max: Any
    """``[B, K + 1, tiles]`` float32: the largest logit of a tile."""
    tile_sum: Any
    """``[B, K + 1, tiles]`` float32: sum of ``exp((L - tile_max) / T)``; NaN where a tile holds NaN or +inf."""
    tile_arg: Any
    """``[B, K + 1, tiles]`` int32: lowest id of the largest logit; written for greedy requests only."""


class Noise(NamedTuple):
    """Explicit integers, or the words of each request's stream."""

    accept: Any
    sampling: Any
    seed: Any
    position: Any
    sequence: Any


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
    """Candidates for each row's cut, in id order: a list for every chunk of the row."""

    sub_max: Any
    """``[rows, 4 * tiles]`` float32: the largest logit of every 256 tokens."""
    low: Any
    """``[rows]`` float32: no kept token is below; +inf where nothing is cut."""
    logit: Any
    id: Any
    count: Any
    near_logit: Any
    near_id: Any
    near_size: Any
    """``[rows]`` int32: tokens of a row's short list, which is in no order."""


class Pending(NamedTuple):
    """Requests whose last token needs another pass over rows; each has one slot, or one for every row."""

    head: Any
    """``[B, 4]`` int32: 0 nothing to do, 1 draw from slot 0, 2 decide first; place reached; whether it emits; flaws."""
    place: Any
    """``[B, slots, 4]`` int32: row, mode (-1: not needed), draft, a flag of the method."""
    number: Any
    """``[B, slots, 5]`` float64: max, mass, uniform, ``P`` of the block rule, coin."""
    left: Any
    """``[B, slots, tiles]`` float32: residual mass of each tile."""
    kept: Any
    """``[B, slots, tiles]`` float32: kept mass of each tile (only with filters)."""
