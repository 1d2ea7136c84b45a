"""Which calls a backend refuses, and with which error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Shape = tuple[int, ...]


@clause(
    "CAP-1",
    "MUST",
    "A call that needs a method, dtype, filter, proposal kind or device that the backend does not declare"
    " raises CapabilityError; nothing is replaced silently.",
)
def undeclared(declared: Mapping[str, Iterable[str]], needed: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """What a call needs that is not declared, by capability; any entry means refusal.

    >>> undeclared({"filters": ["top_k"]}, {"filters": ["top_k", "min_p"]})
    {'filters': {'min_p'}}
    """
    missing = {name: set(values) - set(declared.get(name, ())) for name, values in needed.items()}
    return {name: values for name, values in missing.items() if values}


@dataclass(frozen=True)
class Call:
    """The shapes of a ``verify`` call. ``cu_rows`` is None for the padded layout."""

    logits: Shape
    drafts: Shape
    sampling: int
    integers: Shape
    coins: Shape | None
    cu_rows: tuple[int, ...] | None = None


def _row_faults(call: Call, batch: int, places: int) -> list[str]:
    if call.cu_rows is None:
        fits = len(call.logits) == 3 and call.logits[:2] == (batch, places)
        return [] if fits else [f"target_logits {call.logits}: [B, K + 1, V] = [{batch}, {places}, V]"]
    if len(call.logits) != 2:
        return [f"target_logits {call.logits}: [R, V]"]
    steps = [b - a for a, b in zip(call.cu_rows, call.cu_rows[1:], strict=False)]
    fits = len(steps) == batch and call.cu_rows[0] == 0 and call.cu_rows[-1] == call.logits[0]
    return [] if fits and all(0 <= step <= places for step in steps) else [f"cu_rows {call.cu_rows}"]


@clause(
    "CAP-2",
    "MUST",
    "A call whose shapes, dtypes or host values do not fit the contract raises ContractError.",
)
def malformed(call: Call) -> list[str]:
    """The parts of a call whose shapes do not fit together; any entry means refusal.

    >>> malformed(Call((2, 4, 9), (2, 3), 2, (2, 4), (2, 3)))
    []
    """
    if len(call.drafts) != 2:
        return [f"draft_tokens {call.drafts}: [B, K]"]
    batch, length = call.drafts
    faults = _row_faults(call, batch, length + 1)
    if call.sampling != batch:
        faults.append(f"sampling of {call.sampling} requests: {batch}")
    if call.integers != (batch, length + 1):
        faults.append(f"sampling integers {call.integers}: [B, K + 1] = [{batch}, {length + 1}]")
    if call.coins != (batch, length):
        faults.append(f"accept coins {call.coins}: [B, K] = [{batch}, {length}]")
    return faults
