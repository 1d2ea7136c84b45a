"""From tensors to launches. Nothing here reads a value that lives on the device."""

from __future__ import annotations

import functools
from typing import Any

import attrs
import torch
from torch import Tensor

from flashspec.contract import (
    Dense,
    Domain,
    Mixed,
    Proposal,
    RowStats,
    Sampling,
    Sparse,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec_triton._plan import (
    CUT_WARPS,
    FEW_TILES,
    JUDGE_WARPS,
    MOST_SPREAD,
    SEARCH_REGISTERS,
    SEARCH_WARPS,
    SPARSE_WARPS,
    Plan,
    plan,
    power,
    waves,
)
from flashspec_triton._tensors import floats, integers, tensor, unfiltered, unit_stride
from flashspec_triton.kernels import args
from flashspec_triton.kernels.cut import cut_kernel, laws_kernel, search_kernel
from flashspec_triton.kernels.judge import BLOCK, PATH, TOKEN
from flashspec_triton.kernels.mask import unpack_kernel
from flashspec_triton.kernels.near import NEAR, ROOM
from flashspec_triton.kernels.remainder import finish_kernel, remainder_kernel
from flashspec_triton.kernels.rows import rows_kernel
from flashspec_triton.kernels.sample import sample_kernel
from flashspec_triton.kernels.settle import settle_kernel

SHIFTS = {torch.bfloat16: 16, torch.float16: 13, torch.float32: 0}
"""Low bits of a float32 that are 0 in every logit of a dtype."""
METHODS = {"token": int(TOKEN), "greedy": int(TOKEN), "path": int(PATH), "block": int(BLOCK)}
MOST_PROGRAMS = 65_535
"""Programs along the second and third axis of a grid."""


@attrs.frozen(eq=False)
class Matrix:
    """Rows ``[B, width, V]`` (or ragged ``[R, V]``) with what turns them into laws."""

    target: args.Target
    knobs: args.Knobs | None
    """None if no filter is on."""
    strides: tuple[int, int, int]
    batch: int
    width: int
    vocab: int
    ragged: int
    masked: bool
    device: torch.device
    poison: bool
    aligned: bool
    """Whether vocabulary and strides are multiples of 16."""
    overlap: bool
    """Whether the device can overlap launches (programmatic dependent launch)."""
    slotted: bool
    """Whether ``target.slots`` says where each request's state is."""

    def scratch(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory that a kernel writes before it is read; junk under ``poison``."""
        empty = torch.empty(shape, dtype=dtype, device=self.device)
        if self.poison:
            empty.fill_(torch.nan if dtype.is_floating_point else 0x5A5A5A5A)
        return empty


def matrix(
    rows: Tensor,
    cu_rows: Any,
    batch: int,
    width: int,
    sampling: Sampling,
    poison: bool,
    slots: Tensor | None = None,
) -> Matrix:
    """Rows of a call with scratch memory for the statistics of their tiles."""
    rows = unit_stride(rows)
    device, vocab = rows.device, int(rows.shape[-1])
    shape = plan(batch * width, width, vocab)
    mask = None if sampling.allowed is None else unpacked(tensor(sampling.allowed, device, torch.int32), vocab)
    filtered = not unfiltered(sampling)
    if filtered and slots is not None:
        sampling, slots = gathered(sampling, slots), torch.arange(batch, device=device)
    knobs = None
    if filtered:
        top_k, top_p, min_p = sampling.top_k, sampling.top_p, sampling.min_p
        knobs = args.Knobs(integers(top_k, device), floats(top_p, device), floats(min_p, device))
    temperature = floats(sampling.temperature, device)
    ragged = cu_rows is not None
    edges = integers(cu_rows, device) if ragged else temperature.view(torch.int64)
    words = temperature.view(torch.int64) if mask is None else mask
    blank = args.Target(rows, words, edges, temperature, edges if slots is None else slots, None, None)
    steps = (0, rows.stride(0)) if ragged else (rows.stride(0), rows.stride(1))
    made = Matrix(
        blank, knobs, (*steps, 0 if mask is None else mask.shape[1]), batch, width, vocab, int(ragged),
        mask is not None, device, poison, aligned(vocab, *steps), overlaps(device), slots is not None,
    )  # fmt: skip
    size = (batch, width, shape.tiles)
    target = blank._replace(tile_max=made.scratch(*size), tile_sum=made.scratch(*size))
    return attrs.evolve(made, target=target)


def gathered(sampling: Sampling, slots: Tensor) -> Sampling:
    """The parameters of each request from those of its slot."""
    fields = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    heat, top_k, top_p, min_p = (floats(v, slots.device)[slots] for v in fields)
    return Sampling(heat, top_k.long(), top_p, min_p, sampling.allowed)


def unpacked(words: Tensor, vocab: int) -> Tensor:
    """A byte per token; rows begin at multiples of 16."""
    rows, stride = int(words.shape[0]), -(-vocab // 16) * 16
    out = torch.empty((rows, stride), dtype=torch.int8, device=words.device)
    if rows:
        unpack_kernel[rows, -(-stride // 1024)](words, out, words.shape[1], stride, vocab)
    return out


def aligned(*sizes: int) -> bool:
    """Whether all sizes are multiples of 16."""
    return all(size % 16 == 0 for size in sizes)


@functools.cache
def overlaps(device: torch.device) -> bool:
    """Whether a device has programmatic dependent launch: NVIDIA, compute capability 9.0 and later."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)


def over(batch: int, places: int, chunks: int) -> tuple[int, int, int]:
    """A grid over all chunks of a batch's rows, those of one row side by side; only a grid's first axis can be long."""
    return (batch, places, chunks) if batch > MOST_PROGRAMS else (chunks, places, batch)


def measure_rows(m: Matrix, shape: Plan, copy: Tensor | None = None) -> args.Laws | None:
    """Statistics of all tiles and, with filters, the cut of every row; into ``copy`` the rows themselves."""
    sub = m.target.tile_max if m.knobs is None else m.scratch(m.batch, m.width, 4 * shape.tiles)
    read_rows(m, shape, sub, copy, None, 0, m.width)
    return None if m.knobs is None else cut_rows(m, sub, shape)


def read_rows(
    m: Matrix, shape: Plan, sub: Tensor, copy: Tensor | None, going: Tensor | None, begin: int, end: int
) -> None:
    """Launch the pass over places ``begin`` to ``end`` of all requests, or of those that are ``going`` on."""
    rows_kernel[over(m.batch, end - begin, shape.chunks)](
        m.target, sub, sub if copy is None else copy, sub if going is None else going, *m.strides, m.vocab, m.width,
        shape.tiles, m.ragged, begin, MASKED=m.masked, ALIGNED=m.aligned, T=shape.group, SUBS=m.knobs is not None,
        COPY=copy is not None, LAZY=going is not None, SLOTTED=m.slotted, FLIP=m.batch > MOST_PROGRAMS,
        **overlapping(m), num_warps=shape.warps,
    )  # fmt: skip


def overlapping(m: Matrix) -> dict[str, bool]:
    """Launch options of a kernel that may start before the one before it has ended."""
    return {"PDL": True, "launch_pdl": True} if m.overlap else {"PDL": False}


def laws_of(m: Matrix) -> args.Laws:
    """Room for the statistics of every row."""
    size = (m.batch, m.width)
    top, mass, cut = (m.scratch(*size, dtype=torch.float64) for _ in range(3))
    return args.Laws(top, mass, cut, m.scratch(*size, dtype=torch.int64))


def cut_rows(m: Matrix, sub: Tensor, shape: Plan) -> args.Laws:
    """Find where the filters cut each row; what is kept of its tiles takes the place of their statistics."""
    slots = m.batch * m.width
    room = slots * (int(ROOM) + int(NEAR))
    short = args.Short(sub, m.scratch(slots), m.scratch(room), m.scratch(room, dtype=torch.int32))
    laws = laws_of(m)
    sizes = (m.target, m.knobs, short, laws, *m.strides, m.vocab, m.batch, m.width, shape.tiles, m.ragged)
    common: dict[str, Any] = {"MASKED": m.masked, "ALIGNED": m.aligned, **overlapping(m)}
    cut_kernel[(slots,)](*sizes, **common, TP=shape.padded, SP=power(4 * shape.tiles), num_warps=CUT_WARPS)
    limit = {"maxnreg": SEARCH_REGISTERS} if m.overlap else {}
    shift = SHIFTS[m.target.logits.dtype]
    search_kernel[(slots,)](*sizes, **common, SHIFT=shift, num_warps=SEARCH_WARPS, **limit)
    return laws


def measured(m: Matrix) -> args.Laws:
    """Statistics of whole rows: what a proposal without recorded ones needs."""
    shape = plan(m.batch * m.width, m.width, m.vocab)
    laws = measure_rows(m, shape)
    if laws is None:
        laws = laws_of(m)
        sizes = (m.vocab, m.width, shape.tiles)
        laws_kernel[(m.batch * m.width,)](m.target, laws, *sizes, TP=shape.padded, num_warps=JUDGE_WARPS)
    return laws


@attrs.frozen(eq=False)
class Drafted:
    """Drafts with the laws they came from, as the kernels take them."""

    draft: args.Draft
    listed: int
    strides: tuple[int, int, int]
    mixed: int
    sparse: bool
    dense: bool
    masked: bool
    aligned: bool


def drafted(tokens: Tensor, proposal: Proposal, poison: bool, slots: Tensor | None = None) -> Drafted:
    """The proposal of a call; missing statistics of dense drafts are computed here."""
    device = tokens.device
    sparse = proposal.sparse if isinstance(proposal, Mixed) else proposal if isinstance(proposal, Sparse) else None
    dense = proposal.dense if isinstance(proposal, Mixed) else proposal if isinstance(proposal, Dense) else None
    mixed = isinstance(proposal, Mixed)
    parts: dict[str, Any] = dict.fromkeys(args.Draft._fields, tokens)
    if slots is not None:
        parts["slots"] = slots
    if isinstance(proposal, Mixed):
        parts["kind"] = integers(proposal.kind, device)
    listed, strides, masked = 0, (0, 0, 0), False
    if tokens.shape[1] == 0:
        return Drafted(args.Draft(**parts), 0, strides, 0, False, False, False, True)
    if sparse is not None:
        listed = int(sparse.ids.shape[2])
        logs = sparse.logprobs if isinstance(sparse.logprobs, Tensor) else floats(sparse.logprobs, device)
        parts |= {"ids": tensor(sparse.ids, device, torch.int64), "logprobs": logs.to(device).contiguous()}
    if dense is not None:
        m = matrix(dense.logits, None, int(dense.logits.shape[0]), tokens.shape[1], dense.sampling, poison)
        laws = measured(m) if dense.stats is None else recorded(dense.stats, device)
        parts |= {"logits": m.target.logits, "allowed": m.target.allowed, "temperature": m.target.temperature}
        parts |= laws._asdict()
        strides, masked = m.strides, m.masked
    kinds, even = (sparse is not None, dense is not None), aligned(*strides[:2])
    return Drafted(args.Draft(**parts), listed, strides, int(mixed), *kinds, masked, even)


def recorded(stats: RowStats, device: torch.device) -> args.Laws:
    """Statistics that came with a proposal."""
    top, mass, cut = (floats(v, device) for v in (stats.max, stats.mass, stats.cut_logit))
    return args.Laws(top, mass, cut, integers(stats.cut_id, device))


def noise(source: Stream | Uniforms, device: torch.device, slots: Tensor | None = None) -> tuple[args.Noise, int]:
    """The random numbers of a call, and 1 if they are explicit."""
    if isinstance(source, Stream):
        seed, position, sequence = (integers(v, device) for v in (source.seed, source.position, source.sequence))
        return args.Noise(seed, seed, seed, position, sequence, seed if slots is None else slots), 0
    sampling = integers(source.sampling, device)
    accept = sampling if source.accept is None else integers(source.accept, device)
    return args.Noise(accept, sampling, sampling, sampling, sampling, sampling), 1


def drawn(
    m: Matrix, numbers: tuple[args.Noise, int], domain: Domain, index: int, copy: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, args.Laws]:
    """Launch what draws a token from the one row of every request: tokens, log-probabilities, status and laws.

    The rows are written to ``copy`` while they are read.
    """
    shape = plan(m.batch, 1, m.vocab)
    words, explicit = numbers
    tokens, status = (m.scratch(m.batch, dtype=torch.int64) for _ in range(2))
    logprobs = m.scratch(m.batch, dtype=torch.float64)
    laws = measure_rows(m, shape, copy) or laws_of(m)
    sample_kernel[(m.batch,)](
        m.target, words, tokens, logprobs, status, laws, m.strides[0], m.strides[2], m.vocab, shape.tiles, explicit,
        int(domain), index, MASKED=m.masked, FILTER=m.knobs is not None, ALIGNED=m.aligned, TP=shape.padded,
        num_warps=JUDGE_WARPS, **overlapping(m),
    )  # fmt: skip
    return tokens, logprobs, status, laws


def judge(m: Matrix, d: Drafted, numbers: tuple[args.Noise, int], method: str) -> Verdict:
    """Launch everything that turns rows and drafts into a verdict."""
    shape = plan(m.batch * m.width, m.width, m.vocab)
    wide, long_ = torch.float64, torch.int64
    counts = [m.scratch(m.batch, dtype=long_) for _ in range(3)]
    out = args.Out(m.scratch(m.batch, m.width, dtype=long_), m.scratch(m.batch, m.width, dtype=wide), *counts)
    words, explicit = numbers
    filtered, number = m.knobs is not None, METHODS[method]
    slots = m.width if method == "block" and d.dense else 1
    pending = _pending(m, shape, slots, d.dense)
    flags = {"MASKED": m.masked, "SPARSE": d.sparse, "DENSE": d.dense, "QMASK": d.masked, "FILTER": filtered}
    common: dict[str, Any] = {
        **flags, "ALIGNED": m.aligned and d.aligned, "SLOTTED": m.slotted, **overlapping(m)
    }  # fmt: skip
    few = shape.split(FEW_TILES)
    lazy = method != "block" and not filtered
    ends = waves(m.batch, m.width, shape.tiles) if lazy else (m.width,)
    spread = d.dense and number == METHODS["token"] and m.batch * few.chunks <= MOST_SPREAD
    going = m.scratch(m.batch, dtype=torch.int32) if len(ends) > 1 else counts[0]
    laws, begin = args.Laws(*out[:1] * 4), 0
    for end in ends:
        if len(ends) == 1:
            laws = measure_rows(m, shape) or laws
        else:
            read_rows(m, shape, m.target.tile_max, None, going if begin else None, begin, end)
        settle_kernel[(few.chunks, m.batch) if spread else (m.batch,)](
            m.target, laws, words, d.draft, out, pending, going, *m.strides, m.vocab, m.width, shape.tiles,
            d.listed, *d.strides, m.ragged, explicit, d.mixed, slots, begin, end,
            METHOD=number, **common, LAZY=len(ends) > 1,
            SPREAD=spread, T=few.group, TP=shape.padded, J=shape.places,
            num_warps=SPARSE_WARPS if d.sparse else JUDGE_WARPS,
        )  # fmt: skip
        begin = end
    if d.dense:
        rest = (m.vocab, m.width, shape.tiles, d.listed, *d.strides, m.ragged)
        if not spread:
            remainder_kernel[over(m.batch, slots, few.chunks)](
                m.target, laws, d.draft, pending, *m.strides, *rest, **common, T=few.group, SCALED=method == "block",
                FLIP=m.batch > MOST_PROGRAMS, num_warps=few.warps,
            )  # fmt: skip
        finish_kernel[(m.batch,)](
            m.target, laws, d.draft, out, pending, *m.strides, *rest, slots,
            METHOD=number, **common, J=shape.places, TP=shape.padded, num_warps=JUDGE_WARPS,
        )  # fmt: skip
    return Verdict(out.tokens, out.accepted, out.emitted, out.status, out.logprobs)


def _pending(m: Matrix, shape: Plan, slots: int, later: bool) -> args.Pending:
    if not later:
        return args.Pending(*(m.target.tile_max,) * 4)
    head, place = m.scratch(m.batch, 2, dtype=torch.int32), m.scratch(m.batch, slots, 4, dtype=torch.int32)
    number = m.scratch(m.batch, slots, 5, dtype=torch.float64)
    return args.Pending(head, place, number, m.scratch(m.batch, slots, shape.tiles))
