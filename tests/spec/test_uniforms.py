"""Random integers and what they stand for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from flashspec import rng
from flashspec.contract import TILE, Domain, Status, Stream
from flashspec_spec import philox, sampling, status
from flashspec_spec.uniforms import accept_uniform, sampling_uniform

KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
SEED, POSITION, SEQUENCE = 0x123456789ABCDEF0, 77, 5


@pytest.mark.clause("UNI-1")
def test_accept_uniforms_lie_strictly_inside_the_unit_interval() -> None:
    """The smallest is 2**-33 and the largest 1 - 2**-33; cells are equal."""
    assert accept_uniform(0) == Fraction(1, 2**33)
    assert accept_uniform(2**32 - 1) == 1 - Fraction(1, 2**33)
    assert accept_uniform(8) - accept_uniform(7) == Fraction(1, 2**32)


@pytest.mark.clause("UNI-2")
def test_sampling_uniforms_use_the_upper_52_bits_and_are_exact_in_float64() -> None:
    """The low 12 bits do not matter; every value is a float64."""
    assert sampling_uniform(0) == sampling_uniform(4095) == Fraction(1, 2**53)
    assert sampling_uniform(2**64 - 1) == 1 - Fraction(1, 2**53)
    assert Fraction(float(sampling_uniform(0xDEADBEEF12345678))) == sampling_uniform(0xDEADBEEF12345678)


@pytest.mark.parametrize(("convert", "bits"), [(accept_uniform, 32), (sampling_uniform, 64)])
def test_integers_outside_their_range_are_refused(convert: Callable[[int], Fraction], bits: int) -> None:
    """Negative or too large integers raise."""
    for value in (-1, 2**bits):
        with pytest.raises(ValueError, match=rf"an integer in \[0, 2\*\*{bits}\)"):
            convert(value)


@pytest.mark.clause("RNG-1")
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN, ids=["zeros", "ones", "pi"])
def test_philox_gives_the_known_answers(counter: tuple[int, int, int, int], key: tuple[int, int], words: str) -> None:
    """The published vectors hold, in the spec and in the host generator."""
    assert " ".join(f"{word:08x}" for word in philox.philox4x32(counter, key)) == words
    assert " ".join(f"{int(word):08x}" for word in rng.philox(counter, key)) == words


@pytest.mark.clause("RNG-2", "RNG-3")
def test_coins_and_integers_are_words_of_one_block() -> None:
    """Word 0 is the coin and the low half; the counter and key have the stated order."""
    key = (SEED & 0xFFFFFFFF, SEED >> 32)
    words = philox.philox4x32((3, POSITION, SEQUENCE, Domain.BONUS), key)
    assert philox.coin(SEED, POSITION, SEQUENCE, Domain.BONUS, 3) == words[0]
    assert philox.bits(SEED, POSITION, SEQUENCE, Domain.BONUS, 3) == words[0] + (words[1] << 32)


@pytest.mark.clause("RNG-3", "RNG-4")
def test_every_argument_separates_the_streams() -> None:
    """Changing the seed (either half), position, sequence, domain or index gives other numbers."""
    base = (SEED, POSITION, SEQUENCE, 2, 0)
    others = [(SEED ^ 1, *base[1:]), (SEED ^ 1 << 40, *base[1:]), (SEED, 78, 5, 2, 0), (SEED, 77, 6, 2, 0)]
    others += [(SEED, 77, 5, domain, 0) for domain in (1, 3, 4, 5, 6)] + [(SEED, 77, 5, 2, 1)]
    assert len({philox.bits(*each) for each in [base, *others]}) == 11


@pytest.mark.clause("RNG-2", "RNG-3", "RNG-4")
def test_the_host_generator_is_that_of_the_spec() -> None:
    """Coins and integers of a batch equal those of each request alone, at every place."""
    stream = Stream.of([SEED, 1, 2**64 - 1], [POSITION, 0, 2**32 - 1], [SEQUENCE, 9, 2**32 - 1])
    index = np.arange(4)[None, :]
    coins, integers = rng.coins(stream, Domain.ACCEPT, index), rng.bits(stream, Domain.RESIDUAL, index)
    for b, who in enumerate([(SEED, POSITION, SEQUENCE), (1, 0, 9), (2**64 - 1, 2**32 - 1, 2**32 - 1)]):
        for j in range(4):
            assert int(coins[b, j]) == philox.coin(*who, Domain.ACCEPT, j)
            assert int(integers[b, j]) == philox.bits(*who, Domain.RESIDUAL, j)


@pytest.mark.clause("UNI-1", "UNI-2")
def test_the_host_uniforms_are_those_of_the_spec() -> None:
    """Conversion in float64 is exact, also at the ends."""
    for value in (0, 1, 4095, 4096, 2**32 - 1):
        assert Fraction(float(rng.unit32(value))) == accept_uniform(value)
        assert Fraction(float(rng.unit64(value << 32))) == sampling_uniform(value << 32)


@pytest.mark.clause("RNG-3", "SMP-3")
def test_constants_of_spec_and_contract_are_the_same() -> None:
    """Domains, status bits and the tile length have one value each."""
    assert {d.name: d.value for d in philox.Domain} == {d.name: d.value for d in Domain}
    assert {s.name: s.value for s in status.Status} == {s.name: s.value for s in Status}
    assert sampling.TILE == TILE
