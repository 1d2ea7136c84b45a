"""FlashSpec's float64 backend on NumPy: the easiest one to read."""

from flashspec_numpy._backend import NumpyBackend as NumpyBackend
from flashspec_numpy._backend import backend as backend

__all__ = ["NumpyBackend", "backend"]
