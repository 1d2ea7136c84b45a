"""Arms that come and go while a state is kept: what is known of the arms that stay is carried over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.errors import ContractError
from flashspec.selectors import cht
from flashspec.selectors.serial import arrays_of
from flashspec.selectors.types import Arms, Selector, State

TABLES = (
    "adaptive_ts",
    "cht",
    "d_ts",
    "d_ucb",
    "fixed",
    "hazard_ts",
    "kl_ucb",
    "mixture",
    "random",
    "thompson",
    "ucb1",
)
"""Selectors whose states are tables by draft, arm and offset, each entry of which stands for itself."""
PROBES = tuple(Arms.of({f"draft{d}": (1, longest) for d in range(drafts)}) for drafts, longest in ((12, 59), (16, 71)))
"""Pools of different numbers of drafts, arms and offsets: they show which axis of a state is which."""
Places = tuple[list[int], list[int]]
"""Indices before and after."""


def carry(selector: Selector, state: State, arms: Arms) -> State:
    """The state for other arms: entries of drafts, arms and offsets that both have, and fresh ones elsewhere.

    Drafts and arms are told by name. Batch dimensions stay. What an arm that goes had learned is lost;
    to bring it back later, leave it among the arms and mask it with ``active``.

    Raises:
        ContractError: a selector whose state cannot be carried, since its entries depend on each
            other (weights that sum to 1, a window of past arms); a state of another selector.
    """
    if selector.name not in TABLES:
        raise ContractError(
            f"the state of selector {selector.name} cannot be carried to other arms; allowed: {', '.join(TABLES)}; "
            "start again with selector.init(arms), or keep the arms and mask some with active"
        )
    fresh, before = selector.init(arms), arrays_of(state)
    if type(fresh) is not type(state):
        raise ContractError(f"state is {type(state).__name__}; allowed for {selector.name}: {type(fresh).__name__}")
    axes, shared = axes_of(selector), both(state.arms, arms)
    moved = {name: moved_to(x, before[name], axes[name], shared) for name, x in arrays_of(fresh).items()}
    made = attrs.evolve(fresh, **moved)
    if not isinstance(made, cht.Tables):
        return made
    # What was learned is carried; the constants are those of the new arms, whose tiers may differ.
    return cht.tables(arms.pool, cht.Options(**selector.config), fresh, made.counts, made.log_weight)


def axes_of(selector: Selector) -> dict[str, tuple[str | None, ...]]:
    """What each axis of each array goes over, batch dimensions left out: "draft", "arm", "offset" or None."""
    states = [arrays_of(selector.init(probe)) for probe in PROBES]
    sizes = {tuple(map(len, (p.drafts for p in PROBES))): "draft", tuple(map(len, PROBES)): "arm"}
    sizes[PROBES[0].longest, PROBES[1].longest] = "offset"
    return {
        name: tuple(sizes.get(pair) for pair in zip(*(state[name].shape for state in states), strict=True))
        for name in states[0]
    }


def both(old: Arms, new: Arms) -> dict[str, Places]:
    """Where drafts, arms and offsets that both have are in each."""
    offsets = list(range(min(old.longest, new.longest)))
    return {
        "draft": common(old.drafts, new.drafts),
        "arm": common(old.names, new.names),
        "offset": (offsets, offsets),
    }


def common(old: Sequence[str], new: Sequence[str]) -> Places:
    """Places of the names that both have."""
    stay = [name for name in new if name in old]
    return [old.index(name) for name in stay], [new.index(name) for name in stay]


def moved_to(
    fresh: npt.NDArray[Any], old: npt.NDArray[Any], axes: Sequence[str | None], shared: dict[str, Places]
) -> npt.NDArray[Any]:
    """``fresh`` with the batch dimensions of ``old`` and its entries where both have one."""
    lead = old.shape[: old.ndim - fresh.ndim]
    made = np.array(np.broadcast_to(fresh, lead + fresh.shape))
    whole = [list(range(size)) for size in fresh.shape]
    pairs = [(place, place) if axis is None else shared[axis] for axis, place in zip(axes, whole, strict=True)]
    here: tuple[Any, ...] = (..., *np.ix_(*(before for before, _ in pairs)))
    there: tuple[Any, ...] = (..., *np.ix_(*(after for _, after in pairs)))
    made[there] = old[here]
    return made
