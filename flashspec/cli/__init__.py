"""The command line. Thin: it reads options, calls the library and shows what came of it.

Exit codes: 0 done; 1 something failed (weights, files, network, a model that cannot be used);
2 the command line is wrong (an unknown option or name, a value out of range, an empty prompt, a
prompt that cannot be read); 130 Ctrl-C; 141 the reader of the output went away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashspec.cli.wiring import Wiring

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, wiring: Wiring | None = None) -> int:
    """Run a command line; see ``flashspec.cli.run.main``."""
    try:
        # Imported here so that Ctrl-C during the imports ends as quietly as later.
        from flashspec.cli import run

        return run.main(argv, wiring)
    except KeyboardInterrupt:
        return 130
