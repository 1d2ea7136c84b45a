"""One tree of errors; every message says what was given, what is allowed, what to do.

Which step raises what:

==========================  =================================================
checking a call's values    :class:`ContractError`
asking for what a backend   :class:`CapabilityError`
did not declare
loading a backend by name   :class:`BackendUnavailable`, :class:`UnknownName`
reading weights or caches   :class:`ModelError`
results on the device       never an exception: ``Verdict.status`` bits
==========================  =================================================
"""


class FlashSpecError(Exception):
    """Base of every error that FlashSpec raises on purpose."""


class ContractError(FlashSpecError, ValueError):
    """A value that the contract forbids: wrong shape, dtype, device or range."""


class CapabilityError(FlashSpecError, NotImplementedError):
    """A request for something that the backend, model or cache does not declare."""


class BackendUnavailable(FlashSpecError, ImportError):
    """A backend that was asked for by name and cannot be loaded; the reason follows."""


class UnknownName(FlashSpecError, LookupError):
    """A name that no registry knows; the known names are listed."""


class ModelError(FlashSpecError, OSError):
    """Weights, tokenizers or caches that cannot be had or are not what they claim to be."""


class NumericalError(FlashSpecError, ArithmeticError):
    """Numbers that no law can be made of, reported by ``Verdict.status``."""


class OutOfMemory(FlashSpecError, MemoryError):
    """A step that does not fit into memory even without drafts and alone."""


def unknown_name(kind: str, given: str, known: list[str]) -> UnknownName:
    """Build the error for an unknown ``kind`` of thing, naming the known ones."""
    listed = ", ".join(sorted(known)) or "none"
    return UnknownName(f"unknown {kind} {given!r}; known: {listed}")
