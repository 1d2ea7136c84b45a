"""Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011): randomness as a pure function of integers."""

from __future__ import annotations

import enum

from flashspec_spec.clauses import clause

Words = tuple[int, int, int, int]

_LOW = 0xFFFFFFFF


class Domain(enum.IntEnum):
    """What a random number is for: the last counter word. Same numbers as ``flashspec.contract.Domain``."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    BONUS = 4
    COUPLE = 5
    SELECT = 6


@clause("RNG-1", "MUST", "The generator is Philox4x32 with 10 rounds; its published known answers hold.")
def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """The block of four uint32 words of a counter and a key.

    >>> [f"{word:08x}" for word in philox4x32((0, 0, 0, 0), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _LOW, (a >> 32) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


@clause(
    "RNG-3",
    "MUST",
    "The counter is (index, position, sequence, domain) and the key is the seed (low word, high word);"
    " draft, accept, residual and bonus have domains of their own.",
)
@clause(
    "RNG-4",
    "MUST",
    "A request's random numbers depend on nothing but its own seed, position, sequence, domain and index:"
    " not on its batch row, nor on its neighbours.",
)
def block(seed: int, position: int, sequence: int, domain: int, index: int) -> Words:
    """The words of one place of a round: a function of these five numbers alone."""
    return philox4x32((index, position, sequence, int(domain)), (seed & _LOW, seed >> 32))


@clause(
    "RNG-2",
    "MUST",
    "Word 0 of a block is the accept coin; word 0 (low half) and word 1 (high half) are the sampling integer.",
)
def bits(seed: int, position: int, sequence: int, domain: int, index: int) -> int:
    """The uint64 sampling integer of one place."""
    low, high, _, _ = block(seed, position, sequence, domain, index)
    return high << 32 | low


def coin(seed: int, position: int, sequence: int, domain: int, index: int) -> int:
    """The uint32 accept coin of one place (RNG-2)."""
    return block(seed, position, sequence, domain, index)[0]
