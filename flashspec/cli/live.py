"""The live table of ``flashspec generate --live``: which draft is taken, what it brings, and why."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flashspec.cli import output
from flashspec.decoding import ArmStats, Generation, Info

if TYPE_CHECKING:
    from flashspec.selectors import Arms

PERIOD = 0.25
"""Seconds between two drawings, since each takes time from decoding."""
TAIL = 6
"""Lines of text shown above the table."""

COLUMNS = ("draft", "steps", "share", "drafted", "accepted", "rate", "per step", "tokens/s", "score")

Draw = Callable[[str], None]
"""Told each piece of text."""


def rows(arms: Mapping[str, ArmStats]) -> list[tuple[object, ...]]:
    """One row of :data:`COLUMNS` per draft."""
    steps = sum(arm.pulls for arm in arms.values())
    return [
        (
            name,
            arm.pulls,
            f"{arm.pulls / steps:.0%}" if steps else "-",
            arm.drafted,
            arm.accepted,
            f"{arm.accepted / arm.drafted:.2f}" if arm.drafted else "-",
            f"{arm.accepted / arm.pulls:.2f}" if arm.pulls else "-",
            "-" if arm.tokens_per_second is None else f"{arm.tokens_per_second:.1f}",
            "-" if arm.score is None else f"{arm.score:.1f}",
        )
        for name, arm in arms.items()
    ]


def why(arms: Arms, info: Info | None) -> str:
    """The newest choice, its score, and the best arm of any other draft."""
    if info is None:
        return ""
    mine = info.scores[info.arm]
    others = [m for m, d in enumerate(arms.draft) if d != arms.draft[info.arm] and info.scores[m] > float("-inf")]
    told = f"newest step: {arms.names[info.arm]}, score {mine:.1f}"
    if not others:
        return f"{told}; no other draft could be played"
    rival = max(others, key=lambda m: info.scores[m])
    return f"{told}; best of the others: {arms.names[rival]}, score {info.scores[rival]:.1f}"


def picture(generation: Generation, text: Sequence[str]) -> Any:
    """What is drawn: the end of the text, the table, the reason."""
    from rich.console import Group
    from rich.text import Text

    stats = generation.partial.stats
    tail = "".join(text).splitlines()[-TAIL:]
    head = f"{stats.emitted} tokens, {stats.tokens_per_second:.1f} tokens/s"
    reason = why(generation.engine.arms, generation.last)
    return Group(Text("\n".join(tail)), output.table(head, COLUMNS, rows(stats.arms)), Text(reason, overflow="fold"))


@contextlib.contextmanager
def drawing(generation: Any, wanted: bool) -> Iterator[Draw | None]:
    """What draws the table on standard error while a generation runs; None where nobody would see it.

    The table is gone at the end. Nothing moves between drawings, and they are :data:`PERIOD` apart.
    """
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    pieces: list[str] = []
    last = time.monotonic()
    console = Console(file=sys.stderr, highlight=False)
    with Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:

        def draw(piece: str) -> None:
            nonlocal last
            pieces.append(piece)
            now = time.monotonic()
            if now - last >= PERIOD:
                live.update(picture(generation, pieces), refresh=True)
                last = time.monotonic()

        yield draw
