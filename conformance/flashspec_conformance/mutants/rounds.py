"""Faults that only a second round or another position shows."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain, Stream, Uniforms
from flashspec_conformance.mutants.mutant import Mutant, hooks
from flashspec_conformance.plain import views
from flashspec_conformance.plain.views import Draws


def _draws(id: str, fault: str, *clauses: str, change: Callable[[Draws, Stream, int], Draws]) -> Mutant:
    def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
        draws = views.numbers(randomness, width)
        return change(draws, randomness, width) if isinstance(randomness, Stream) else draws

    return hooks(id, fault, *clauses, numbers=numbers)


def _places(stream: Stream, width: int) -> list[Stream]:
    position = np.asarray(stream.position, np.uint64)
    moved = [((position + np.uint64(j)) % np.uint64(1 << 32)).astype(np.uint32) for j in range(width)]
    return [attrs.evolve(stream, position=m) for m in moved]


def _coins_by_position(draws: Draws, stream: Stream, width: int) -> Draws:
    """The coin of place j is that of place 0 of position + j: a later round reads it again."""
    coins = [rng.coins(at, Domain.ACCEPT, 0) for at in _places(stream, width)]
    return attrs.evolve(draws, coins=np.stack(coins, axis=1) if coins else draws.coins)


def _residual_by_position(draws: Draws, stream: Stream, width: int) -> Draws:
    drawn = [rng.bits(at, Domain.RESIDUAL, 0) for at in _places(stream, width + 1)]
    return attrs.evolve(draws, residual=np.stack(drawn, axis=1))


def _coins_of_last_round(draws: Draws, stream: Stream, width: int) -> Draws:
    """The coins are those of half the position: two rounds in turn share them."""
    half = attrs.evolve(stream, position=np.asarray(stream.position, np.uint32) >> np.uint32(1))
    return attrs.evolve(draws, coins=rng.coins(half, Domain.ACCEPT, np.arange(width)[None, :]))


MUTANTS = (
    _draws(
        "coins_by_position",
        "coins are keyed by absolute position, so that the next round reads them again",
        "BLK-4",
        "RNG-3",
        change=_coins_by_position,
    ),
    _draws(
        "residual_by_position",
        "residual integers are keyed by absolute position",
        "BLK-4",
        "RNG-3",
        change=_residual_by_position,
    ),
    _draws(
        "coins_of_two_rounds",
        "two rounds share their coins",
        "BLK-4",
        "RNG-3",
        change=_coins_of_last_round,
    ),
)
