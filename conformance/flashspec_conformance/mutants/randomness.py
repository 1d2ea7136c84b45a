"""Faults of where random numbers come from."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain, Stream, Uniforms
from flashspec_conformance.mutants.mutant import Mutant, hooks
from flashspec_conformance.plain import views
from flashspec_conformance.plain.views import Draws


def _stream(id: str, fault: str, *clauses: str, change: Callable[[Stream], Stream]) -> Mutant:
    def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
        return views.numbers(change(randomness) if isinstance(randomness, Stream) else randomness, width)

    return hooks(id, fault, *clauses, numbers=numbers)


def _draws(id: str, fault: str, *clauses: str, change: Callable[[Draws, Stream, int], Draws]) -> Mutant:
    def numbers(randomness: Stream | Uniforms, width: int) -> Draws:
        draws = views.numbers(randomness, width)
        return change(draws, randomness, width) if isinstance(randomness, Stream) else draws

    return hooks(id, fault, *clauses, numbers=numbers)


def _domain(domain: Domain) -> Callable[[Draws, Stream, int], Draws]:
    def change(draws: Draws, stream: Stream, width: int) -> Draws:
        return attrs.evolve(draws, residual=rng.bits(stream, domain, np.arange(width + 1)[None, :]))

    return change


def _first_place(draws: Draws, stream: Stream, width: int) -> Draws:
    return Draws(*(np.repeat(x[:, :1], x.shape[1], axis=1) for x in attrs.astuple(draws, recurse=False)))


def _other_words(draws: Draws, stream: Stream, width: int) -> Draws:
    half = np.uint64(32)
    swapped = [(x >> half) | (x << half) for x in (draws.residual, draws.bonus, draws.path)]
    return Draws(draws.coins, *swapped)


def _another_generator(draws: Draws, stream: Stream, width: int) -> Draws:
    mixed = [x * np.uint64(0x9E37_79B9_7F4A_7C15) for x in (draws.residual, draws.bonus, draws.path)]
    return Draws(draws.coins * np.uint32(0x9E37_79B9), *mixed)


def _by_row(stream: Stream) -> Stream:
    return attrs.evolve(stream, sequence=np.arange(len(stream.seed), dtype=np.uint32))


MUTANTS = (
    _stream("keyed_by_batch_row", "streams are keyed by the place in the batch", "RNG-4", "RNG-3", change=_by_row),
    _stream(
        "position_ignored",
        "every round reads the same numbers",
        "RNG-3",
        change=lambda s: attrs.evolve(s, position=np.zeros_like(s.position)),
    ),
    _stream(
        "seed_truncated",
        "only the low word of the seed is used",
        "RNG-3",
        change=lambda s: attrs.evolve(s, seed=np.asarray(s.seed, np.uint64) & np.uint64(0xFFFF_FFFF)),
    ),
    _draws(
        "draft_noise_reused",
        "the residual is drawn with the draft's number",
        "RNG-3",
        "RND-2",
        "LAW-1",
        change=_domain(Domain.DRAFT),
    ),
    _draws(
        "accept_block_reused",
        "the residual is drawn with the accept coin's block",
        "RNG-3",
        "RND-2",
        "LAW-1",
        change=_domain(Domain.ACCEPT),
    ),
    _draws("one_place_for_all", "every place reads place 0", "RNG-3", change=_first_place),
    _draws("words_swapped", "the halves of a sampling integer are swapped", "RNG-2", change=_other_words),
    _draws("another_generator", "the generator is not Philox4x32-10", "RNG-1", change=_another_generator),
)
