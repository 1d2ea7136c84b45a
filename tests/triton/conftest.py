"""The Triton backend under test: on a GPU if there is one, else in Triton's interpreter.

The interpreter is chosen when kernels are defined, so this file asks for it before anything imports them.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from flashspec.contract import Backend

torch = pytest.importorskip("torch")
HAVE_TRITON = find_spec("triton") is not None
collect_ignore = [] if HAVE_TRITON else ["philox_kernel.py"]
"""A kernel for the tests, no test: doctest collection would import it."""
HAVE_GPU = bool(torch.cuda.is_available())
if HAVE_TRITON and not HAVE_GPU:
    os.environ["TRITON_INTERPRET"] = "1"

# The interpreter computes with NumPy, which warns of the NaN and infinities that the kernels reckon with.
QUIET = "ignore::RuntimeWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip everything here without Triton, with that reason."""
    for item in items:
        if "tests/triton/" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings(QUIET))
            if not HAVE_TRITON:
                reason = "triton is not installed: pip install 'flashspec[gpu]' (Linux)"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels run."""
    return "cuda" if HAVE_GPU else "cpu"


@pytest.fixture(scope="session")
def backend() -> Backend:
    """The backend with junk in its scratch memory and outputs before every call."""
    from flashspec_triton import interpreted, poisoned

    chosen: Backend = poisoned if HAVE_GPU else interpreted
    return chosen
