"""What every outcome looks like, whatever the rule that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashspec_spec.clauses import clause
from flashspec_spec.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

NO_LAW = Status.NONFINITE | Status.EMPTY_ROW


@clause(
    "OUT-1",
    "MUST",
    "tokens holds the accepted drafts, then one token, then -1 up to K + 1 places; num_emitted is"
    " num_accepted + 1, or num_accepted if the next row has no law, or 0 if the request owns no row.",
)
def well_formed(
    tokens: Sequence[int],
    num_accepted: int,
    num_emitted: int,
    status: int,
    drafts: Sequence[int],
    num_rows: int,
) -> bool:
    """Whether the tokens and counts of one request fit together and with its drafts.

    >>> well_formed([3, 5, -1], 1, 2, 0, [3, 4], 3), well_formed([3, 5, 1], 1, 2, 0, [3, 4], 3)
    (True, False)
    """
    expected = 0 if num_rows == 0 else num_accepted if status & NO_LAW else num_accepted + 1
    emitted, rest = list(tokens[:num_emitted]), list(tokens[num_emitted:])
    return (
        len(tokens) == len(drafts) + 1
        and num_emitted == expected
        and 0 <= num_accepted <= max(num_rows - 1, 0)
        and emitted[:num_accepted] == list(drafts[:num_accepted])
        and all(token >= 0 for token in emitted)
        and all(token == -1 for token in rest)
    )


@clause("OUT-2", "MUST", "Every emitted id is in [0, V) and has positive probability under the target's law.")
def in_support(emitted: Sequence[int], laws: Sequence[Sequence[Fraction]]) -> bool:
    """Whether each emitted token is one that its row's law can give.

    >>> from fractions import Fraction
    >>> in_support([1], [[Fraction(1), Fraction(0)]])
    False
    """
    return all(0 <= token < len(p) and p[token] > 0 for token, p in zip(emitted, laws, strict=False))


@clause(
    "PUR-1",
    "MUST",
    "A call leaves the bytes of its inputs as they were, and its outputs share no memory with its inputs.",
)
def pure(before: Sequence[bytes], after: Sequence[bytes], spans: Sequence[tuple[range, range]]) -> bool:
    """Whether inputs kept their bytes and no (input, output) pair of address ranges overlaps.

    >>> pure([b"a"], [b"a"], [(range(0, 8), range(4, 12))])
    False
    """
    apart = all(a.stop <= b.start or b.stop <= a.start or not a or not b for a, b in spans)
    return list(before) == list(after) and apart


@clause("PUR-2", "MUST", "The same call gives the same result, bit for bit, whatever was called before.")
def repeatable(results: Sequence[Sequence[bytes]]) -> bool:
    """Whether all results of one call are the same bytes."""
    return all(list(result) == list(results[0]) for result in results)
