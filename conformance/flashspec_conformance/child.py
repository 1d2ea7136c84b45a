"""The process that runs the tests: ``python -m flashspec_conformance.child`` is pytest that dies with its parent."""

from __future__ import annotations

import os
import sys
import threading

ORPHANED = 3
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def die_with_parent() -> None:
    """End this process when standard input ends: the parent holds its other end for as long as it lives."""
    if sys.platform == "linux":
        # A backend that hangs without releasing the interpreter lock keeps the thread below from running.
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    descriptor = os.dup(0)

    def wait() -> None:
        while os.read(descriptor, 1):
            pass
        os._exit(ORPHANED)

    threading.Thread(target=wait, daemon=True).start()


def main(arguments: list[str]) -> int:
    """Run pytest; the result is its exit status."""
    die_with_parent()
    import pytest

    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
