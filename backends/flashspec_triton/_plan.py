"""Which design runs when: the one table. Every choice gives the same bits, only the time differs."""

from __future__ import annotations

import attrs

from flashspec.contract import TILE

JUDGE_WARPS = 4
"""Warps of the program that judges a request."""
MOST_WARPS = 4
"""Warps of a program that reads tiles."""
CUT_TILES = 4
CUT_WARPS = 8
"""Tiles and warps of one program of the cut kernel."""
MOST_PLACES = 16
"""Rows of a request that are judged at once."""


def power(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@attrs.frozen
class Plan:
    """Launch shapes of one call."""

    tiles: int
    """Tiles of a row."""
    padded: int
    """``tiles`` rounded up to a power of two."""
    group: int
    """Tiles of one program of the rows kernel."""
    warps: int
    """Warps of it: each has ``group / warps`` tiles, and nothing of a tile crosses warps."""
    chunks: int
    places: int
    """Rows of a request that are judged at once."""
    judge_warps: int

    def split(self, group: int) -> Plan:
        """The same with ``group`` tiles in a program of the rows kernel."""
        chunks = -(-self.tiles // group)
        return attrs.evolve(self, group=group, warps=min(group, MOST_WARPS), chunks=chunks)


def plan(rows: int, places: int, vocab: int) -> Plan:
    """The launch shapes for ``rows`` rows, ``places`` of them per request."""
    tiles = -(-vocab // TILE)
    group = 1
    for larger, least in ((2, 1024), (4, 2048)):
        if rows * -(-tiles // larger) >= least:
            group = larger
    padded, judged = max(power(tiles), 16), min(max(power(places), 8), MOST_PLACES)
    judge_warps = JUDGE_WARPS
    return Plan(tiles, padded, group, min(group, MOST_WARPS), -(-tiles // group), judged, judge_warps)
