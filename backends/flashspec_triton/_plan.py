"""Which design runs when: the one table. Every choice gives the same bits, only the time differs."""

from __future__ import annotations

import attrs

from flashspec.contract import TILE

JUDGE_WARPS = 4
"""Warps of the program that judges a request."""
SPARSE_WARPS = 8
"""The same, where sparse drafts may be among them."""
LEAST_PLACES = 8
"""Places that a verdict has room for at least: fewer kernels to compile."""
FEW_TILES, MOST_TILES = 4, 8
"""Tiles of a program that reads rows: a multiple of its warps, so that a tile is always added up alike."""
MANY = 16_384
"""Tiles of a call from which on programs have ``MOST_TILES``."""
WARPS = 4
"""Warps of a program that reads tiles."""
MOST_SPREAD = 64
"""Programs up to which each of them comes to a request's verdict by itself, which saves a launch."""
LEAST_WAVES = 4
"""Rows of a request below which there is one wave."""
LAZY_TILES = 140_000
"""Tiles of a call from which on rows are read in two waves."""
CUT_WARPS, SEARCH_WARPS = 16, 8
"""Warps of the programs that find where filters cut a row, among few and among many candidates."""
SEARCH_REGISTERS = 128
"""Registers of a thread that searches: two programs on a multiprocessor."""


def power(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@attrs.frozen
class Plan:
    """Launch shapes of one call."""

    tiles: int
    """Tiles of a row, rounded up to a multiple of ``FEW_TILES``."""
    padded: int
    """``tiles`` rounded up to a power of two."""
    group: int
    """Tiles of one program of the rows kernel."""
    warps: int
    chunks: int
    places: int
    """Rows of a request, rounded up to a power of two."""

    def split(self, group: int) -> Plan:
        """The same with ``group`` tiles in a program of the rows kernel."""
        chunks = -(-self.tiles // group)
        return attrs.evolve(self, group=group, chunks=chunks)


def plan(rows: int, places: int, vocab: int) -> Plan:
    """The launch shapes for ``rows`` rows, ``places`` of them per request."""
    tiles = -(-vocab // (TILE * FEW_TILES)) * FEW_TILES
    group = FEW_TILES if rows * tiles < MANY else MOST_TILES
    padded, judged = max(power(tiles), 16), max(power(places), LEAST_PLACES)
    return Plan(tiles, padded, group, WARPS, -(-tiles // group), judged)


def waves(batch: int, width: int, tiles: int) -> tuple[int, ...]:
    """The places up to which rows are read before a verdict is tried, the last one ``width``.

    Each verdict costs a launch, and a request that goes on waits for all others; what it saves is the rows of
    requests that have ended. That pays where reading takes long.
    """
    if batch * width * tiles < LAZY_TILES or width < LEAST_WAVES:
        return (width,)
    return width // 2, width
