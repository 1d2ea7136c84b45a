"""Which design runs when: the one table. Every choice gives the same bits, only the time differs."""

from __future__ import annotations

import attrs

from flashspec.contract import TILE

JUDGE_WARPS = 4
"""Warps of the program that judges a request."""
FEW_TILES, MOST_TILES = 4, 8
"""Tiles of a program that reads rows: a multiple of its warps, so that a tile is always added up alike."""
MANY = 16_384
"""Tiles of a call from which on programs have ``MOST_TILES``."""
WARPS = 4
"""Warps of a program that reads tiles."""
CUT_TILES = 4
CUT_WARPS = 8
"""Tiles that a program of the cut kernels looks at in one step, and its warps."""
CUT_PROGRAMS = 128
"""Programs that look for the candidates of all rows, at least one a row: most rows need none."""


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
    judge_warps: int

    def split(self, group: int) -> Plan:
        """The same with ``group`` tiles in a program of the rows kernel."""
        chunks = -(-self.tiles // group)
        return attrs.evolve(self, group=group, chunks=chunks)


def plan(rows: int, places: int, vocab: int) -> Plan:
    """The launch shapes for ``rows`` rows, ``places`` of them per request."""
    tiles = -(-vocab // (TILE * FEW_TILES)) * FEW_TILES
    group = FEW_TILES if rows * tiles < MANY else MOST_TILES
    padded, judged = max(power(tiles), 16), max(power(places), 2)
    judge_warps = JUDGE_WARPS
    return Plan(tiles, padded, group, WARPS, -(-tiles // group), judged, judge_warps)
