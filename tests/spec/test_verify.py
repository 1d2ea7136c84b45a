"""Verification of one request, on cases worked out by hand.

Equal logits over k tokens give masses of exactly 1/k, so thresholds are known to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest

from flashspec_spec.philox import Domain, bits, coin
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow
from flashspec_spec.rows import Row, sample
from flashspec_spec.status import Status
from flashspec_spec.uniforms import accept_uniform
from flashspec_spec.verify import verify, verify_stream

INF = math.inf
LAST_COIN, LAST = 2**32 - 1, 2**64 - 1
HALF_COIN, HALF = 2**31, 2**63


def flat(tokens: Sequence[int], vocabulary: int = 4, temperature: float = 0.7) -> Row:
    """A row that is uniform over some tokens."""
    return Row([0.0 if v in tokens else -INF for v in range(vocabulary)], temperature)


ALL = flat(range(4))
BAD = Row([math.nan] * 4, 0.7)
HOT: list[ProposalRow] = [OneHotRow()] * 3
FIRST_TWO = DenseRow((Fraction(1, 2), Fraction(1, 2), Fraction(0), Fraction(0)))


@pytest.mark.clause("PRP-1", "ACC-1", "OUT-1")
@pytest.mark.parametrize(
    ("coin", "tokens"), [(2**30 - 1, (2, 0)), (2**30, (3, -1))], ids=["last accepting", "first rejecting"]
)
def test_one_hot_drafts_are_accepted_below_p(coin: int, tokens: tuple[int, ...]) -> None:
    """With p(x) = 1/4 exactly the coins below 2**30 accept; the residual is p without x."""
    out = verify([ALL, ALL], [2], HOT, [coin], [LAST, 0])
    assert out.tokens == tokens
    assert out.num_emitted == out.num_accepted + 1 == sum(token >= 0 for token in tokens)
    assert out.margin < 2**-30


@pytest.mark.clause("PRP-1", "RES-1")
@pytest.mark.parametrize(("integer", "token"), [(0, 0), (LAST // 3 - 2**13, 0), (LAST // 3 + 2**13, 1), (LAST, 3)])
def test_the_one_hot_residual_is_uniform_over_the_others(integer: int, token: int) -> None:
    """After rejecting 2 the tokens 0, 1, 3 have a third each."""
    out = verify([ALL, BAD], [2], HOT, [LAST_COIN], [integer, 0])
    assert (out.tokens, out.num_accepted, out.num_emitted, out.status) == ((token, -1), 0, 1, Status.OK)
    assert out.logprobs == pytest.approx((-math.log(4), 0.0))


@pytest.mark.clause("ACC-1")
def test_equality_rejects() -> None:
    """U * q == p is a rejection; the slightest bit less of q is an acceptance."""
    q = Fraction(1, 4) / accept_uniform(HALF_COIN)
    for q_x, accepted in ((q, 0), (q * (1 - Fraction(1, 10**30)), 1)):
        proposal = DenseRow((q_x, 1 - q_x, Fraction(0), Fraction(0)))
        out = verify([ALL, ALL], [0], [proposal], [HALF_COIN], [0, 0])
        assert out.num_accepted == accepted
        assert out.margin < 1e-29


@pytest.mark.clause("ACC-1", "PRP-3", "RES-1")
@pytest.mark.parametrize(
    ("coin", "integer", "tokens"),
    [(2**31 - 1, 0, (1, 0)), (2**31, 0, (2, -1)), (2**31, HALF - 1, (2, -1)), (2**31, HALF, (3, -1))],
)
def test_dense_drafts_use_the_ratio_and_the_difference(coin: int, integer: int, tokens: tuple[int, ...]) -> None:
    """p = 1/4 everywhere, q = 1/2 on two: accept below 1/2, else draw evenly from the other two."""
    out = verify([ALL, ALL], [1], [FIRST_TWO], [coin], [integer, 0])
    assert out.tokens == tokens


@pytest.mark.clause("PRP-2")
def test_sparse_and_dense_proposals_of_one_law_are_judged_alike() -> None:
    """A list of ids and probabilities is the dense law with 0 elsewhere."""
    sparse = SparseRow((1, 0), (Fraction(1, 2), Fraction(1, 2)))
    for c in (0, 2**31 - 1, 2**31, LAST_COIN):
        for r in (0, HALF, LAST):
            dense_out = verify([ALL, ALL], [1], [FIRST_TWO], [c], [r, r])
            sparse_out = verify([ALL, ALL], [1], [sparse], [c], [r, r])
            assert sparse_out.tokens == dense_out.tokens
            assert sparse_out.status is Status.OK


@pytest.mark.clause("ACC-2")
def test_a_draft_without_target_mass_is_rejected_by_every_coin() -> None:
    """p(x) = 0 rejects at the smallest coin as well."""
    out = verify([flat([1, 3]), ALL], [0], HOT, [0], [LAST, 0])
    assert (out.tokens, out.num_accepted) == ((3, -1), 0)


@pytest.mark.clause("ACC-3", "STS-3", "BON-2")
def test_nothing_after_the_first_rejection_is_read() -> None:
    """Row, draft, proposal and coin of later places may hold anything."""
    clean = verify([ALL] * 4, [1, 2, 3], HOT, [0, LAST_COIN, 0], [HALF] * 4)
    dirty = verify([ALL, ALL, BAD, BAD], [1, 2, 99], [*HOT[:2], DenseRow(None)], [0, LAST_COIN, LAST_COIN], [HALF] * 4)
    assert clean == dirty
    assert (clean.num_accepted, clean.num_emitted, clean.tokens[2:]) == (1, 2, (-1, -1))


@pytest.mark.clause("BON-1", "BON-2", "OUT-1")
def test_after_the_last_accepted_draft_comes_one_bonus_token() -> None:
    """The bonus is drawn from the last row with the integer of its place."""
    out = verify([ALL, ALL, flat([0, 3])], [1, 2], HOT, [0, 0], [0, 0, HALF])
    assert (out.tokens, out.num_accepted, out.num_emitted) == ((1, 2, 3), 2, 3)
    assert out.logprobs == pytest.approx((-math.log(4), -math.log(4), -math.log(2)))


@pytest.mark.clause("BON-1", "LAY-2", "STS-3")
def test_minus_one_ends_the_chain_with_a_draw_from_that_row() -> None:
    """A chain of one draft in a call of three: no rejection, no residual, later places unread."""
    out = verify([ALL, flat([2]), BAD, BAD], [1, -1, 77], HOT, [0, LAST_COIN, 0], [0, LAST, 0, 0])
    assert (out.tokens, out.num_accepted, out.num_emitted, out.status) == ((1, 2, -1, -1), 1, 2, Status.OK)


@pytest.mark.clause("BON-1")
def test_no_drafts_is_plain_sampling() -> None:
    """A request with one row emits what ``sample`` draws with the same integer."""
    row = Row([0.3, 1.0, -INF, 0.2], 1.3, top_p=0.9)
    for integer in (0, HALF, LAST):
        drawn, out = sample(row, integer), verify([row], [], [], [], [integer])
        assert (out.tokens, out.logprobs, out.margin) == ((drawn.token,), (drawn.logprob,), drawn.margin)


@pytest.mark.clause("LAY-3", "OUT-1")
def test_a_request_without_rows_emits_nothing() -> None:
    """No rows: counts 0, no status, all places -1."""
    out = verify([], [1, 2], HOT, [0, 0], [0, 0, 0])
    assert (out.tokens, out.num_accepted, out.num_emitted, out.status) == ((-1, -1, -1), 0, 0, Status.OK)


@pytest.mark.clause("LAY-1", "OUT-1")
def test_a_short_request_of_a_wide_call_reads_only_its_own_places() -> None:
    """Two rows among three drafts: one draft is judged, the next row is the bonus row."""
    out = verify([ALL, ALL], [1, 2, 3], HOT, [0, 0, 0], [0, LAST, 0, 0])
    assert (out.tokens, out.num_accepted, out.num_emitted) == ((1, 3, -1, -1), 1, 2)
    with pytest.raises(ValueError, match="3 rows for 1 drafts; allowed: at most 2"):
        verify([ALL] * 3, [1], HOT, [0], [0, 0])


@pytest.mark.clause("STS-1", "STS-2", "OUT-1")
@pytest.mark.parametrize(
    ("row", "status"),
    [(BAD, Status.NONFINITE), (Row([0.0, INF], 0.7), Status.NONFINITE), (flat([]), Status.EMPTY_ROW)],
    ids=["nan", "inf", "empty"],
)
@pytest.mark.parametrize("draft", [1, -1, 99])
def test_a_needed_row_without_law_ends_the_output(row: Row, status: Status, draft: int) -> None:
    """The drafts accepted before it are emitted, no more, whatever was drafted there."""
    out = verify([ALL, row, ALL], [1, draft], HOT, [0, 0], [0, 0, 0])
    assert (out.tokens, out.num_accepted, out.num_emitted, out.status) == ((1, -1, -1), 1, 1, status)
    greedy = verify([Row(row.logits, 0.0)], [], [], [], [0])
    assert (greedy.tokens, greedy.num_emitted, greedy.status) == ((-1,), 0, status)


@pytest.mark.clause("RES-1", "BON-1")
def test_each_row_has_an_integer_of_its_own() -> None:
    """A residual at row 1 is drawn with integer 1, not with that of another row."""
    out = verify([ALL] * 3, [1, 1], [FIRST_TWO] * 2, [0, LAST_COIN], [0, LAST, 0])
    assert out.tokens == (1, 3, -1)


def test_margins_of_draws_are_distances_to_the_edges() -> None:
    """A residual counts the ends of its CDF as edges, a draw from p does not."""
    residual = verify([ALL, ALL], [1], [FIRST_TWO], [LAST_COIN], [0, 0])
    assert (residual.tokens, residual.margin) == ((2, -1), 2**-54)
    assert sample(ALL, 0).margin == verify([ALL], [], [], [], [0]).margin == pytest.approx(0.25)
    assert sample(ALL, 2**62 + 2**61).margin == pytest.approx(0.125)


@pytest.mark.clause("STS-4", "BON-1")
@pytest.mark.parametrize("draft", [4, 10**12, -2])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_draft_out_of_range_is_no_draft(draft: int, temperature: float) -> None:
    """It is read as -1: a draw from p of that row, with a status bit."""
    out = verify([flat([3], temperature=temperature), BAD], [draft], HOT, [0], [LAST, 0])
    assert (out.tokens, out.num_accepted, out.status) == ((3, -1), 0, Status.DRAFT_OUT_OF_RANGE)


@pytest.mark.clause("STS-4", "STS-3")
def test_a_draft_out_of_range_that_is_not_reached_sets_nothing() -> None:
    """After a rejection the bad id has no influence."""
    assert verify([ALL] * 3, [1, 9], HOT, [LAST_COIN, 0], [0, 0, 0]).status is Status.OK


@pytest.mark.clause("PRP-5")
@pytest.mark.parametrize(
    "proposal",
    [
        DenseRow(None),
        DenseRow((Fraction(1), Fraction(0), Fraction(0), Fraction(0))),
        SparseRow((0, 1), (Fraction(1, 2), Fraction(1, 2))),
        SparseRow((2, 1), None),
        SparseRow((2, 1), (Fraction(1, 2), Fraction(501, 1000) + Fraction(1, 10**6))),
        SparseRow((2, 1), (Fraction(0), Fraction(1))),
    ],
    ids=["no law", "q(x) = 0", "not listed", "no numbers", "sum 1.001001", "listed with 0"],
)
def test_invalid_proposals_are_judged_as_one_hot(proposal: ProposalRow) -> None:
    """The outcome is that of an unsampled draft, with a status bit, for accepting and rejecting coins."""
    for c in (2**30 - 1, 2**30, LAST_COIN):
        out = verify([ALL, ALL], [2], [proposal], [c], [HALF, 0])
        hot = verify([ALL, ALL], [2], HOT, [c], [HALF, 0])
        assert (out.tokens, out.status) == (hot.tokens, Status.INVALID_PROPOSAL)


@pytest.mark.clause("PRP-5")
def test_sparse_sums_within_a_thousandth_are_laws() -> None:
    """An error of exactly 1e-3 is allowed."""
    proposal = SparseRow((2, 1), (Fraction(1, 2), Fraction(499, 1000)))
    out = verify([ALL, ALL], [2], [proposal], [0], [0, 0])
    assert (out.status, out.num_accepted) == (Status.OK, 1)


@pytest.mark.clause("RES-2")
def test_a_residual_without_mass_falls_back_to_the_target() -> None:
    """A recorded q slightly above p everywhere leaves nothing: the token comes from p, with a status bit."""
    q = SparseRow((0, 1, 2, 3), (Fraction(2501, 10000),) * 4)
    out = verify([ALL, BAD], [1], [q], [LAST_COIN], [HALF, 0])
    assert (out.tokens, out.status) == ((2, -1), Status.RESIDUAL_FALLBACK)
    assert out.logprobs[0] == pytest.approx(-math.log(4))
    assert out.margin <= 4e-4


@pytest.mark.clause("GRD-1", "TMP-2", "LGP-1")
def test_greedy_rows_accept_while_the_draft_is_the_argmax() -> None:
    """Ties go to the lower id, no coin and no proposal is read, logprobs are 0."""
    rows = [Row([1.0, 5.0, 5.0], 0.0), Row([9.0, 5.0, 9.0], 0.0), Row([3.0, 2.0, 3.0], 0.0)]
    wrong = [DenseRow(None)] * 2
    every = verify(rows, [1, 0], wrong, [LAST_COIN] * 2, [LAST] * 3)
    assert (every.tokens, every.num_accepted, every.status) == ((1, 0, 0), 2, Status.OK)
    assert (every.logprobs, every.margin) == ((0.0, 0.0, 0.0), INF)
    second = verify(rows, [1, 2], wrong, [0] * 2, [0] * 3)
    assert (second.tokens, second.num_accepted, second.num_emitted) == ((1, 0, -1), 1, 2)


@pytest.mark.clause("LGP-1")
def test_logprobs_are_of_the_filtered_law_at_the_temperature() -> None:
    """An accepted draft reports ln p after top-k, not the raw softmax."""
    row = Row([2.0, 1.0, 0.0], 1.3, top_k=2)
    out = verify([row, row], [1], HOT, [0], [0, 0])
    z = math.exp(2 / 1.3) + math.exp(1 / 1.3)
    assert out.logprobs == pytest.approx((1 / 1.3 - math.log(z), 2 / 1.3 - math.log(z)))


@pytest.mark.clause("RNG-3", "BON-1", "RES-1")
def test_stream_numbers_come_from_their_domains() -> None:
    """Coins are ACCEPT numbers, a draw is RESIDUAL after a rejection and BONUS otherwise, by row."""
    seed, position, sequence = 2**40 + 3, 12, 4
    coins = [coin(seed, position, sequence, Domain.ACCEPT, j) for j in range(2)]
    rejected = [bits(seed, position, sequence, Domain.RESIDUAL, j) for j in range(3)]
    bonus = [bits(seed, position, sequence, Domain.BONUS, j) for j in range(3)]
    for drafts in ([1, 2], [-1, -1], [1, -1], [0, 0]):
        for row in (ALL, flat([0, 1, 2], temperature=1.3), flat([0])):
            out = verify_stream([row] * 3, drafts, HOT, seed, position, sequence)
            ended = out.num_accepted == len(drafts) or drafts[out.num_accepted] == -1
            assert out == verify([row] * 3, drafts, HOT, coins, bonus if ended else rejected)


@pytest.mark.clause("PUR-2")
def test_the_same_call_gives_the_same_outcome() -> None:
    """Nothing is remembered between calls."""
    calls = [verify([ALL, ALL], [2], HOT, [c], [c, c]) for c in (5, LAST_COIN, 5)]
    assert calls[0] == calls[2] != calls[1]
