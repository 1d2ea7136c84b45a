"""The path rule on one request: the text of plain sampling, whatever was drafted."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from flashspec_spec.path import path_integers
from flashspec_spec.philox import Domain, bits
from flashspec_spec.proposals import DenseRow, OneHotRow
from flashspec_spec.rows import Row, sample
from flashspec_spec.status import Status
from flashspec_spec.verify import verify, verify_stream

INF = math.inf
LAST, HALF = 2**64 - 1, 2**63
ALL = Row([0.0] * 4, 0.7)
BAD = Row([math.nan] * 4, 0.7)
SEED, SEQUENCE = 2**50 + 11, 6


def row_after(text: Sequence[int]) -> Row:
    """A target: a row of its own for every text."""
    source = random.Random(str(tuple(text)))
    return Row([source.gauss(0, 1.5) for _ in range(5)], 1.3, top_p=0.9)


def plain_text(length: int) -> list[int]:
    """One token after the other, each the bonus of a round without drafts."""
    text: list[int] = []
    for position in range(length):
        text.append(verify_stream([row_after(text)], [], [], SEED, position, SEQUENCE, "path").tokens[0])
    return text


def path_text(length: int, gamma: int, seed: int) -> tuple[list[int], int]:
    """Rounds of drafts, partly right, until ``length`` tokens are out; how many drafts were accepted."""
    source, text, accepted, right = random.Random(seed), list[int](), 0, plain_text(length + gamma + 1)
    while len(text) < length:
        drafts = [right[len(text) + j] if source.random() < 0.7 else source.randrange(-1, 7) for j in range(gamma)]
        rows = [row_after([*text, *drafts[:j]]) for j in range(gamma + 1)]
        out = verify_stream(rows, drafts, [DenseRow(None)] * gamma, SEED, len(text), SEQUENCE, "path")
        text += out.tokens[: out.num_emitted]
        accepted += out.num_accepted
    return text[:length], accepted


@pytest.mark.clause("PTH-1", "PTH-2", "PTH-3")
@pytest.mark.parametrize("gamma", [1, 2, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_text_is_that_of_plain_sampling_whatever_was_drafted(gamma: int, seed: int) -> None:
    """Token for token, with drafts accepted on the way."""
    text, accepted = path_text(24, gamma, seed)
    assert text == plain_text(24)
    assert accepted > 5


@pytest.mark.clause("PTH-1", "BON-2", "OUT-1")
@pytest.mark.parametrize(("drafts", "accepted"), [([2, 1], 2), ([2, 0], 1), ([0, 1], 0), ([-1, 1], 0), ([2, -1], 1)])
def test_drafts_are_accepted_while_they_equal_the_drawn_tokens(drafts: list[int], accepted: int) -> None:
    """The integers draw 2, 1, 3; the first that differs replaces its draft."""
    out = verify([ALL] * 3, drafts, [], [], [HALF, 2**62, LAST], method="path")
    assert out.tokens == ((2, 1, 3)[: accepted + 1] + (-1,) * (2 - accepted))
    assert (out.num_accepted, out.num_emitted, out.status) == (accepted, accepted + 1, Status.OK)
    assert out.logprobs == pytest.approx([-math.log(4) if token >= 0 else 0.0 for token in out.tokens])


@pytest.mark.clause("PTH-2", "PRP-5")
def test_proposals_and_coins_are_not_read() -> None:
    """Invalid ones set no bit and change nothing; there may be none at all."""
    for proposals in ([OneHotRow()] * 2, [DenseRow(None)] * 2):
        out = verify([ALL] * 3, [2, 0], proposals, [0, 0], [HALF, 2**62, LAST], method="path")
        assert out == verify([ALL] * 3, [2, 0], [], [], [HALF, 2**62, LAST], method="path")


@pytest.mark.clause("PTH-1", "STS-3", "STS-4")
def test_an_id_out_of_range_counts_only_when_reached() -> None:
    """Its row still gives a token; behind a difference it is not read."""
    reached = verify([ALL] * 3, [2, 9], [], [], [HALF, 2**62, 0], method="path")
    assert (reached.tokens, reached.status) == ((2, 1, -1), Status.DRAFT_OUT_OF_RANGE)
    assert verify([ALL] * 3, [0, 9], [], [], [HALF, 0, 0], method="path").status is Status.OK


@pytest.mark.clause("PTH-1", "STS-1", "STS-3")
def test_a_reached_row_without_law_gives_nothing() -> None:
    """The accepted prefix and the status bit; a row behind a difference is not needed."""
    out = verify([ALL, BAD, ALL], [2, 9], [], [], [HALF, 0, 0], method="path")
    assert (out.tokens, out.num_accepted, out.num_emitted, out.status) == ((2, -1, -1), 1, 1, Status.NONFINITE)
    clean = verify([ALL, BAD, ALL], [1, 1], [], [], [HALF, 0, 0], method="path")
    assert (clean.tokens, clean.status) == ((2, -1, -1), Status.OK)


@pytest.mark.clause("PTH-2", "PTH-3", "RNG-3")
def test_the_numbers_of_a_stream_name_the_token() -> None:
    """Row j reads place 0 of position + j in the bonus domain; the position wraps at 2**32."""
    found = path_integers(SEED, 2**32 - 2, SEQUENCE, 4)
    assert found == [bits(SEED, position, SEQUENCE, Domain.BONUS, 0) for position in (2**32 - 2, 2**32 - 1, 0, 1)]
    drawn = [sample(ALL, integer).token for integer in found]
    out = verify_stream([ALL] * 4, drawn[:3], [], SEED, 2**32 - 2, SEQUENCE, "path")
    assert (list(out.tokens), out.num_accepted) == (drawn, 3)


@pytest.mark.clause("PTH-1", "GRD-1")
def test_temperature_0_is_greedy_under_path() -> None:
    """Argmax of each row, no number read."""
    rows = [Row([1.0, 5.0, 5.0], 0.0), Row([9.0, 5.0, 9.0], 0.0)]
    out = verify(rows, [1], [], [], [], method="path")
    assert (out.tokens, out.num_accepted, out.logprobs, out.margin) == ((1, 0), 1, (0.0, 0.0), INF)
    assert out == verify(rows, [1], [], [], [], method="greedy")


@pytest.mark.clause("PTH-1")
def test_margins_are_distances_to_the_edges_of_each_draw() -> None:
    """The closest of all draws that were made; the ends of the CDF do not count."""
    out = verify([ALL] * 2, [2], [], [], [HALF + 2**61, 2**62 - 2**58], method="path")
    assert out.margin == pytest.approx(2**-6)


def test_unknown_methods_are_refused() -> None:
    """The message lists the methods; ``greedy`` wants temperature 0."""
    with pytest.raises(ValueError, match="method is 'paths'; allowed: greedy, token, block, path"):
        verify([ALL], [], [], [], [0], method="paths")
    with pytest.raises(ValueError, match="1 rows have a temperature above 0; allowed with method 'greedy'"):
        verify([ALL], [], [], [], [0], method="greedy")
