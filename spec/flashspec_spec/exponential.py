"""``exp`` of numbers below 0 in integers: slow enough to be obvious, fast enough for whole vocabularies.

A number is an integer over ``2**BITS``. ``exp(-x) = 2**-n * exp(-i/256) * exp(-j/65536) * exp(-r)``: the
power of two is exact, the two factors come from tables, the rest from its Taylor series. The relative
error is below 2**-180 (tested against ``decimal``).
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

BITS = 200
_ONE = 1 << BITS
_DIGITS = Context(prec=80)
_REST = BITS - 16


def _fixed(value: Decimal) -> int:
    return int(_DIGITS.multiply(value, Decimal(_ONE)))


_LN2 = _fixed(_DIGITS.ln(Decimal(2)))
_COARSE = tuple(_fixed(_DIGITS.exp(Decimal(-i) / 256)) for i in range(178))
_FINE = tuple(_fixed(_DIGITS.exp(Decimal(-j) / 65536)) for j in range(256))


def fixed(value: Fraction) -> int:
    """A number that is not negative, over ``2**BITS``, rounded down."""
    return (value.numerator << BITS) // value.denominator


def _series(r: int) -> int:
    """``exp(-r)`` for a small ``r`` by its Taylor series."""
    total, term, i = _ONE, _ONE, 0
    while term:
        i += 1
        term = (term * r >> BITS) // i
        total += -term if i % 2 else term
    return total


def exp_minus(x: int) -> tuple[int, int]:
    """``(mantissa, n)`` with ``exp(-x) = mantissa * 2**-(BITS + n)`` for ``x >= 0`` over ``2**BITS``.

    >>> exp_minus(0) == (1 << BITS, 0)
    True
    """
    n, r = divmod(x, _LN2)
    i, j, rest = r >> (BITS - 8), (r >> _REST) & 255, r & ((1 << _REST) - 1)
    factor = _COARSE[i] * _FINE[j] >> BITS
    return factor * _series(rest) >> BITS, n
