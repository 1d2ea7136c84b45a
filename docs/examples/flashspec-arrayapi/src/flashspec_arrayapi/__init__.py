"""A verifier for FlashSpec in the names of the Python array API standard."""

from flashspec_arrayapi._backend import backend as backend

__all__ = ["backend"]
