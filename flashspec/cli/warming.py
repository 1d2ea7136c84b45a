"""Compiling a backend's kernels before the first request, for ``flashspec doctor``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import attrs

from flashspec.cli.faults import one_line
from flashspec.cli.wiring import Wiring
from flashspec.errors import ContractError, FlashSpecError
from flashspec.registry import Warmable

DTYPES = ("bfloat16", "float16", "float32")
DRAFT_LEN = 8
"""Longest draft that kernels are compiled for."""
ELSEWHERE = "no CUDA device here; run it on the machine that decodes, with FlashSpec's gpu extra"


@attrs.frozen
class Order:
    """What to warm.

    Raises:
        ContractError: no vocabulary, or an unknown dtype.
    """

    vocab: int | None
    target: str | None
    backend: str | None
    dtype: str | None

    def __attrs_post_init__(self) -> None:
        if self.vocab is not None and self.target is not None:
            raise ContractError("--warm and --target both name a vocabulary; give one of them")
        if self.vocab is not None and self.vocab < 1:
            raise ContractError(f"--warm is {self.vocab}; allowed: a vocabulary size >= 1, such as 128256")
        if self.dtype is not None and self.dtype not in DTYPES:
            raise ContractError(f"--dtype is {self.dtype!r}; allowed: {', '.join(DTYPES)}")
        if self.vocab is None and self.target is None and (self.backend, self.dtype) != (None, None):
            raise ContractError("--backend and --dtype say what is warmed; give --warm VOCAB or --target NAME too")

    @property
    def given(self) -> bool:
        """Whether there is anything to warm."""
        return (self.vocab, self.target) != (None, None)


def warm(wiring: Wiring, order: Order, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row for each backend that can be warmed: seconds, or null and the reason.

    Raises:
        FlashSpecError: the target or the named backend cannot be had.
    """
    names = [order.backend] if order.backend else [f.name for f in wiring.backends() if f.usable]
    backends = {name: wiring.backend(name) for name in names}
    able = {name: found for name, found in backends.items() if isinstance(found, Warmable)}
    if not able:
        advice = "name one that does with --backend, on a machine with a GPU"
        return [_row(order.backend, order, reason=f"{', '.join(names)}: nothing to compile; {advice}")]
    if not cuda():
        return [_row(name, order, reason=ELSEWHERE) for name in able]
    vocab, dtype = (order.vocab, order.dtype or DTYPES[0]) if order.target is None else _of(wiring, order, say)
    done = attrs.evolve(order, vocab=vocab, target=None, dtype=dtype)
    return [_warmed(name, found, done, say) for name, found in able.items()]


def cuda() -> bool:
    """Whether there is a CUDA device."""
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def _of(wiring: Wiring, order: Order, say: Callable[[str], None]) -> tuple[int, str]:
    """Vocabulary and dtype of a model as it would decode here."""
    loaded = wiring.load(order.target, dtype=order.dtype or "auto", device="auto", threads=None, progress=say)
    head, config = loaded.model.get_output_embeddings(), loaded.model.config
    return int(config.vocab_size if head is None else head.weight.shape[0]), loaded.dtype


def _warmed(name: str, backend: Warmable, order: Order, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"compiling the kernels of {name} for {order.vocab} tokens")
    try:
        return _row(name, order, seconds=backend.warm(order.vocab or 0, order.dtype or "", DRAFT_LEN, True))
    except (FlashSpecError, RuntimeError) as error:
        return _row(name, order, reason=one_line(error))


def _row(name: str | None, order: Order, *, seconds: float | None = None, reason: str | None = None) -> dict[str, Any]:
    told = {"backend": name, "vocab": order.vocab, "dtype": order.dtype, "draft_len": DRAFT_LEN}
    return {**told, "seconds": seconds, "reason": reason}


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    if row["seconds"] is None:
        return f"warm: {row['reason']}"
    return (
        f"warm: {row['backend']} is ready for {row['vocab']:,} tokens in {row['dtype']}, up to {row['draft_len']} "
        f"drafts; it took {row['seconds']:.1f} s"
    )
