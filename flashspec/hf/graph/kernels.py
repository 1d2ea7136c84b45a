"""Attention of few queries over a long ragged cache: keys are shared out among programs, then put together."""

import torch
import triton
import triton.language as tl

KEYS = 64
"""Keys that a program reads at a time."""
PROGRAMS = 264
"""Programs to aim for: two for each multiprocessor of an H200."""
MOST_SPLITS = 32
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def part_kernel(
    query, keys, values, places, out, parts, sums, sq_head, sq_row, sk_slot, sk_head, sk_key, sv_slot, sv_head, sv_key,
    window,
    SCALE: tl.constexpr, WIDTH: tl.constexpr, GROUPS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr,
    ROWS: tl.constexpr, SPLITS: tl.constexpr, KEYS: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """One share of the keys of one request and key head, for all its queries.

    ``SCALE`` is a constant since compilers hand numbers over as float64. A loop over a range is no choice: the
    interpreter has none whose bounds come from the device.
    """
    pair, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, head = pair // HEADS, pair % HEADS
    rows, dims = tl.arange(0, ROWS), tl.arange(0, SIZE)
    group, token = rows // WIDTH, rows % WIDTH
    real = rows < GROUPS * WIDTH
    place = tl.load(places + slot * WIDTH + token)
    total = (tl.load(places + slot * WIDTH + WIDTH - 1) + 1).to(tl.int32)
    line = slot * WIDTH + token
    column = head * GROUPS + group
    wanted = query + column[:, None] * sq_head + line[:, None] * sq_row + dims[None, :]
    q = tl.load(wanted, mask=real[:, None], other=0.0)
    share = tl.cdiv(tl.cdiv(total, KEYS), SPLITS) * KEYS
    first, last = split * share, tl.minimum((split + 1) * share, total)
    if WINDOWED:
        oldest = (tl.load(places + slot * WIDTH) - window + 1).to(tl.int32)
        first = tl.maximum(first, tl.maximum(oldest, 0) // KEYS * KEYS)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    mass = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, SIZE), tl.float32)
    begin = first
    while begin < last:
        at = begin + tl.arange(0, KEYS)
        there = at < last
        base = keys + slot * sk_slot + head * sk_head
        k = tl.load(base + at[None, :] * sk_key + dims[:, None], mask=there[None, :], other=0.0)
        seen = (at[None, :] <= place[:, None]) & there[None, :]
        if WINDOWED:
            seen = seen & (at[None, :] > place[:, None] - window)
        score = tl.where(seen, tl.dot(q, k, input_precision="ieee") * (SCALE * LOG2E), float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2(score - anchor[:, None])
        fade = tl.exp2(top - anchor)
        mass = mass * fade + tl.sum(weight, 1)
        base = values + slot * sv_slot + head * sv_head
        v = tl.load(base + at[:, None] * sv_key + dims[None, :], mask=there[:, None], other=0.0)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
        top = higher
        begin += KEYS
    if SPLITS == 1:
        final = out + (line[:, None] * (HEADS * GROUPS) + column[:, None]) * SIZE + dims[None, :]
        tl.store(final, (mixed / mass[:, None]).to(out.dtype.element_ty), mask=real[:, None])
    else:
        where = (pair * SPLITS + split) * ROWS + rows
        tl.store(parts + where[:, None] * SIZE + dims[None, :], mixed, mask=real[:, None])
        tl.store(sums + where * 2, top, mask=real)
        tl.store(sums + where * 2 + 1, mass, mask=real)


@triton.jit
def join_kernel(
    out, parts, sums,
    WIDTH: tl.constexpr, GROUPS: tl.constexpr, HEADS: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):  # fmt: skip
    """The output of one query head of one token from all shares."""
    pair, row = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, head = pair // HEADS, pair % HEADS
    splits, dims = tl.arange(0, SPLITS), tl.arange(0, SIZE)
    where = (pair * SPLITS + splits) * ROWS + row
    top, mass = tl.load(sums + where * 2), tl.load(sums + where * 2 + 1)
    fade = tl.exp2(top - tl.max(top, 0))
    mixed = tl.load(parts + where[:, None] * SIZE + dims[None, :])
    joined = tl.sum(mixed * fade[:, None], 0) / tl.sum(mass * fade, 0)
    line, column = slot * WIDTH + row % WIDTH, head * GROUPS + row // WIDTH
    tl.store(out + (line * (HEADS * GROUPS) + column) * SIZE + dims, joined.to(out.dtype.element_ty))


def power(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def splits_for(pairs: int, capacity: int) -> int:
    """Shares of the keys: as many as fill the chip, none without a block of keys, a power of two."""
    wanted = max(1, min(MOST_SPLITS, PROGRAMS // pairs, -(-capacity // KEYS)))
    return 1 << (wanted.bit_length() - 1)


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    places: torch.Tensor,
    window: int,
    scale: float | None,
) -> torch.Tensor:
    """Softmax attention in float32 accumulation; see ``attention.Attend``. Head sizes are powers of two."""
    batch, width = places.shape
    heads, size = query.shape[1], query.shape[3]
    stored = keys.shape[1]
    groups, pairs = heads // stored, batch * stored
    rows, splits = max(16, power(groups * width)), splits_for(pairs, keys.shape[2])
    out = torch.empty((1, batch * width, heads, size), dtype=query.dtype, device=query.device)
    parts = out if splits == 1 else query.new_empty((pairs, splits, rows, size), dtype=torch.float32)
    sums = out if splits == 1 else query.new_empty((pairs, splits, rows, 2), dtype=torch.float32)
    used = size**-0.5 if scale is None else scale
    part_kernel[(pairs, splits)](
        query, keys, values, places, out, parts, sums, query.stride(1), query.stride(2), keys.stride(0),
        keys.stride(1), keys.stride(2), values.stride(0), values.stride(1), values.stride(2), window,
        SCALE=used, WIDTH=width, GROUPS=groups, HEADS=stored, SIZE=size, ROWS=rows, SPLITS=splits, KEYS=KEYS,
        WINDOWED=window > 0, num_warps=4,
    )  # fmt: skip
    if splits > 1:
        join_kernel[(pairs, groups * width)](
            out, parts, sums, WIDTH=width, GROUPS=groups, HEADS=stored, SIZE=size, ROWS=rows, SPLITS=splits,
            num_warps=2,
        )  # fmt: skip
    return out
