"""The block rule on one request: cases worked out by hand, and the rule's other wording as a check."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction

import pytest

from flashspec_spec.block import accept_share, block_residual, left_over, next_coverage
from flashspec_spec.draws import Outcome
from flashspec_spec.judged import q_of
from flashspec_spec.philox import Domain, bits, coin
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow, SparseRow, dense_row
from flashspec_spec.rows import Row, row_law
from flashspec_spec.sampling import inverse_cdf
from flashspec_spec.status import Status
from flashspec_spec.uniforms import accept_uniform, sampling_uniform
from flashspec_spec.verify import verify, verify_stream

INF = math.inf
ONE = Fraction(1)
LAST_COIN, LAST, HALF = 2**32 - 1, 2**64 - 1, 2**63


def flat(tokens: Sequence[int], vocabulary: int = 4, temperature: float = 0.7) -> Row:
    """A row that is uniform over some tokens."""
    return Row([0.0 if v in tokens else -INF for v in range(vocabulary)], temperature)


def dense(*parts: int) -> DenseRow:
    """A proposal whose probabilities have these proportions."""
    return DenseRow(tuple(Fraction(part, sum(parts)) for part in parts))


ALL, BAD, EMPTY = flat(range(4)), Row([math.nan] * 4, 0.7), flat([])
FIRST_TWO = dense(1, 1, 0, 0)
HOT: list[ProposalRow] = [OneHotRow()] * 3


def judge(
    rows: Sequence[Row],
    drafts: Sequence[int],
    proposals: Sequence[ProposalRow],
    coins: Sequence[int],
    integers: Sequence[int],
) -> Outcome:
    """``verify`` by the block rule."""
    return verify(rows, drafts, proposals, coins, integers, method="block")


@pytest.mark.clause("BLK-1", "BLK-2")
@pytest.mark.parametrize(
    ("coins", "integers", "tokens"),
    [
        ((LAST_COIN, 2**30 - 1), (0, 0, LAST), (0, 1, 3)),
        ((2**32 // 3 - 1, 2**30), (0, 0, LAST), (0, 2, -1)),
        ((2**32 // 3 - 1, 2**30), (0, HALF, 0), (0, 3, -1)),
        ((2**32 // 3 + 1, 2**30), (0, LAST, 0), (2, -1, -1)),
        ((2**32 // 3 + 1, 2**30), (HALF, 0, 0), (3, -1, -1)),
    ],
    ids=["whole chain", "one, first of its residual", "one, last of its residual", "none, first", "none, last"],
)
def test_two_drafts_by_hand(coins: tuple[int, int], integers: tuple[int, int, int], tokens: tuple[int, ...]) -> None:
    """p = 1/4, q = 1/2 on two: P = 1/2, 1/4; S_1 = 1/4, so that one draft passes below 1/3 and two below 1/4."""
    out = judge([ALL] * 3, [0, 1], [FIRST_TWO] * 2, coins, integers)
    assert out.tokens == tokens
    assert out.num_emitted == out.num_accepted + 1 == sum(token >= 0 for token in tokens)
    assert out.logprobs == pytest.approx([-math.log(4) if token >= 0 else 0.0 for token in tokens])


@pytest.mark.clause("BLK-1")
@pytest.mark.parametrize(("slack", "accepted"), [(Fraction(0), 0), (Fraction(1, 10**30), 1)])
def test_equality_rejects(slack: Fraction, accepted: int) -> None:
    """U == P_g and U (S + 1 - P) == S are failures; the slightest bit more of P is a pass."""
    u = accept_uniform(2**31)
    whole = Fraction(1, 4) / (u + slack)
    out = judge([ALL] * 2, [0], [DenseRow((whole, 1 - whole, *[Fraction(0)] * 2))], [2**31], [0, 0])
    assert (out.num_accepted, out.margin < 1e-29) == (accepted, True)
    # A one-hot second draft leaves S = 3 P / 4, so that the test of one draft is even at P = 4 U / (3 + U).
    first = Fraction(1, 4) / (4 * u / (3 + u) + slack)
    proposals: list[ProposalRow] = [DenseRow((first, 1 - first, *[Fraction(0)] * 2)), OneHotRow()]
    out = judge([ALL] * 3, [0, 1], proposals, [2**31, LAST_COIN], [0, 0, 0])
    assert (out.num_accepted, out.margin < 1e-29) == (accepted, True)


@pytest.mark.clause("BLK-1", "BLK-2")
def test_a_bad_draft_may_be_made_up_for_by_a_good_one() -> None:
    """P falls to 1/2 and is clamped to 1 again: the chain is accepted by every coin, where the token rule fails."""
    rows, proposals = [ALL, flat([1]), ALL], [FIRST_TWO, dense(1, 1, 1, 1)]
    out = judge(rows, [0, 1], proposals, [LAST_COIN] * 2, [0, 0, LAST])
    assert (out.tokens, out.num_accepted) == ((0, 1, 3), 2)
    assert verify(rows, [0, 1], proposals, [LAST_COIN] * 2, [0, 0, LAST]).num_accepted == 0


@pytest.mark.clause("BLK-1", "ACC-2", "OUT-2")
def test_a_draft_without_target_mass_is_never_accepted() -> None:
    """P stays 0 behind it, whatever the coins; what comes before may be accepted."""
    out = judge([ALL, flat([1, 3]), ALL, ALL], [0, 2, 1], HOT, [0, 0, 0], [0, HALF + 2**62, 0, 0])
    assert (out.tokens, out.num_accepted, out.margin > 0.05) == ((0, 3, -1, -1), 1, True)


def by_maximum(
    rows: Sequence[Row], drafts: Sequence[int], proposals: Sequence[ProposalRow], coins: Sequence[int], r: Sequence[int]
) -> tuple[int, int]:
    """tau and the last token in the wording of the paper: the largest i whose coin is below h_i."""
    p = [row_law(row)[0] for row in rows]
    q = [q_of(proposal, x, len(p[0]))[0] for proposal, x in zip(proposals, drafts, strict=True)]
    covered = [ONE]
    for j, x in enumerate(drafts):
        covered.append(next_coverage(covered[-1], p[j][x], q[j][x]))
    g = len(drafts)
    shares = [accept_share(covered[i], left_over(covered[i], p[i], q[i]) if i < g else None) for i in range(1, g + 1)]
    tau = max((i for i in range(1, g + 1) if accept_uniform(coins[i - 1]) < shares[i - 1]), default=0)
    masses = block_residual(covered[tau], p[tau], q[tau]) if tau < g else p[g]
    return tau, inverse_cdf(masses, sampling_uniform(r[tau]))


@pytest.mark.clause("BLK-1", "BLK-2", "BON-1", "PRP-3")
@pytest.mark.parametrize("temperature", [0.7, 1.3])
@pytest.mark.parametrize("gamma", [1, 2, 5])
def test_the_backward_search_finds_the_largest_passing_prefix(gamma: int, temperature: float) -> None:
    """Random rows with holes and a top-k: the same tau and token as by the maximum over all i."""
    source, lengths = random.Random(gamma), set()
    for _ in range(60):
        logits = [[source.gauss(0, 1) for _ in range(6)] for _ in range(gamma + 1)]
        rows = [Row([-INF if source.random() < 0.1 else x for x in row], temperature, top_k=5) for row in logits]
        proposals = [dense_row([x + source.gauss(0, 1) for x in row], 1.3) for row in logits[:-1]]
        drafts = [
            source.choices(range(6), [float(mass) for mass in q.law or ()])[0]
            for q in proposals
            if isinstance(q, DenseRow)
        ]
        coins = [source.getrandbits(32) for _ in range(gamma)]
        integers = [source.getrandbits(64) for _ in range(gamma + 1)]
        out = judge(rows, drafts, proposals, coins, integers)
        assert (out.num_accepted, out.tokens[out.num_accepted]) == by_maximum(rows, drafts, proposals, coins, integers)
        lengths.add(out.num_accepted)
    assert lengths == set(range(gamma + 1))


@pytest.mark.clause("BLK-1", "BLK-2")
def test_one_draft_is_the_token_rule() -> None:
    """Same tokens, counts, status and log-probabilities for every kind of proposal."""
    source = random.Random(5)
    rows = [Row([0.3, 1.0, -INF, 0.2], 0.7), Row([0.1, 0.2, 0.9, 0.3], 1.3)]
    kinds: list[ProposalRow] = [
        FIRST_TWO,
        dense(1, 2, 3, 4),
        OneHotRow(),
        DenseRow(None),
        SparseRow((1, 0), (ONE / 2, ONE / 2)),
    ]
    for _ in range(200):
        coins, integers = [source.getrandbits(32)], [source.getrandbits(64) for _ in range(2)]
        call = rows, [source.randrange(-1, 5)], [source.choice(kinds)], coins, integers
        one, other = verify(*call), judge(*call)
        assert (one.tokens, one.num_accepted, one.status) == (other.tokens, other.num_accepted, other.status)
        assert one.logprobs == other.logprobs


@pytest.mark.clause("BLK-2", "RES-2")
def test_a_residual_without_mass_falls_back_to_the_target() -> None:
    """A recorded q above p everywhere leaves nothing: p of the row with the same integer, and the status bit."""
    q = SparseRow((0, 1, 2, 3), (Fraction(2501, 10000),) * 4)
    out = judge([ALL, ALL, BAD], [1, 1], [q, q], [LAST_COIN] * 2, [HALF, 0, 0])
    assert (out.tokens, out.status) == ((2, -1, -1), Status.RESIDUAL_FALLBACK)
    assert out.margin <= 4e-4


@pytest.mark.clause("BLK-3")
@pytest.mark.parametrize(
    ("drafts", "status"), [([0, -1, 9], Status.OK), ([0, 9, -1], Status.DRAFT_OUT_OF_RANGE)], ids=["-1", "out of range"]
)
def test_the_chain_ends_at_the_first_place_without_a_draft(drafts: list[int], status: Status) -> None:
    """One draft is live; rows, proposals and coins behind the row that gives the bonus have no influence."""
    whole = judge([ALL, flat([2]), BAD, EMPTY], drafts, [FIRST_TWO, DenseRow(None), DenseRow(None)], [0] * 3, [0] * 4)
    assert (whole.tokens, whole.num_accepted, whole.status) == ((0, 2, -1, -1), 1, status)
    none = judge(
        [ALL, flat([2]), BAD, EMPTY], drafts, [FIRST_TWO, DenseRow(None), DenseRow(None)], [LAST_COIN] * 3, [0] * 4
    )
    assert (none.tokens, none.num_accepted, none.status) == ((2, -1, -1, -1), 0, status)


@pytest.mark.clause("BLK-3", "STS-1", "STS-2")
@pytest.mark.parametrize(("bad", "bit"), [(BAD, Status.NONFINITE), (EMPTY, Status.EMPTY_ROW)], ids=["NaN", "empty"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_row_without_law_ends_the_chain(bad: Row, bit: Status, place: int) -> None:
    """Accepted up to it: no further token and its status bit; stopped before: as if it were not there."""
    rows = [bad if j >= place else ALL for j in range(4)]
    full = judge(rows, [0, 1, 9], [FIRST_TWO] * 3, [0] * 3, [0] * 4)
    chain = min(place, 2)
    if place < 3:
        assert (full.tokens[:chain], full.num_accepted, full.num_emitted, full.status) == (
            (0, 1)[:chain],
            chain,
            chain,
            bit,
        )
    else:
        assert (full.tokens, full.status) == ((0, 1, 0, -1), Status.DRAFT_OUT_OF_RANGE)
    if place > 0:
        short = judge(rows, [0, 1, 1], [FIRST_TWO] * 3, [LAST_COIN] * 3, [0] * 4)
        assert (short.tokens, short.num_accepted, short.status) == ((2, -1, -1, -1), 0, Status.OK)


@pytest.mark.clause("BLK-3", "STS-1")
def test_the_draft_of_a_row_without_law_is_not_read() -> None:
    """NaN at row 1 and an id out of range there: only the row's own bit, and only if it had to give the token."""
    rows = [ALL, BAD, ALL]
    assert judge(rows, [0, 9], [FIRST_TWO] * 2, [0, 0], [0] * 3).status == Status.NONFINITE
    assert judge(rows, [0, 9], [FIRST_TWO] * 2, [LAST_COIN, 0], [0] * 3).status == Status.OK


@pytest.mark.clause("BLK-3", "PRP-5")
def test_an_invalid_proposal_of_the_live_chain_sets_its_bit_even_when_not_accepted() -> None:
    """All proposals of the chain are read; one behind its end is not."""
    rows, coins = [ALL] * 4, [LAST_COIN] * 3
    inside = judge(rows, [0, 1, -1], [FIRST_TWO, DenseRow(None), FIRST_TWO], coins, [0] * 4)
    behind = judge(rows, [0, -1, 1], [FIRST_TWO, DenseRow(None), DenseRow(None)], coins, [0] * 4)
    assert (inside.num_accepted, inside.status) == (0, Status.INVALID_PROPOSAL)
    assert (behind.num_accepted, behind.status) == (0, Status.OK)


@pytest.mark.clause("BLK-3", "LAY-1", "LAY-3")
def test_a_short_request_reads_its_own_rows() -> None:
    """Two rows among three drafts: one draft; no rows: nothing."""
    out = judge([ALL, ALL], [1, 9, 3], HOT, [0] * 3, [0, LAST, 0, 0])
    assert (out.tokens, out.num_accepted, out.status) == ((1, 3, -1, -1), 1, Status.OK)
    assert judge([], [1, 2], HOT, [0, 0], [0] * 3).num_emitted == 0


@pytest.mark.clause("BLK-1", "GRD-1")
def test_requests_of_temperature_0_are_judged_greedily() -> None:
    """As under token; a request of mixed temperatures is refused."""
    rows = [Row([1.0, 5.0, 5.0], 0.0), Row([9.0, 5.0, 9.0], 0.0)]
    assert judge(rows, [1], [DenseRow(None)], [LAST_COIN], [LAST] * 2) == verify(rows, [1], [], [], [])
    with pytest.raises(ValueError, match="1 of 2 rows have temperature above 0; allowed with 'block': all or none"):
        judge([rows[0], ALL], [1], HOT, [0], [0, 0])


@pytest.mark.clause("BLK-1", "BLK-4", "RNG-3")
def test_stream_numbers_come_from_their_domains_and_the_round() -> None:
    """Coins are ACCEPT numbers of the place, draws RESIDUAL or BONUS numbers of the place of tau."""
    seed, sequence = 2**40 + 3, 4
    for position in range(12, 30):
        coins = [coin(seed, position, sequence, Domain.ACCEPT, j) for j in range(2)]
        rejected = [bits(seed, position, sequence, Domain.RESIDUAL, j) for j in range(3)]
        bonus = [bits(seed, position, sequence, Domain.BONUS, j) for j in range(3)]
        call = [ALL, flat([0, 1, 2], temperature=1.3), ALL], [0, 1], [FIRST_TWO] * 2
        out = verify_stream(*call, seed, position, sequence, "block")
        assert out == judge(*call, coins, bonus if out.num_accepted == 2 else rejected)


def test_margins_are_absolute_distances() -> None:
    """``|U - P_g|`` and ``|U (S + 1 - P) - S|``; a P clamped from far above 1 cannot fail."""
    far = judge([ALL] * 3, [0, 1], [FIRST_TWO] * 2, [0, 0], [0, 0, 2**62 + 2**61])
    assert far.margin == pytest.approx(0.125)
    near = judge([ALL] * 3, [0, 1], [FIRST_TWO] * 2, [0, 2**30 + 2**20], [0, HALF - 2**61, 0])
    assert near.margin == pytest.approx(2**-12)
    third = judge([ALL] * 3, [0, 1], [FIRST_TWO] * 2, [2**32 // 3 - 2**20, LAST_COIN], [0, 2**62, 0])
    assert third.margin == pytest.approx(0.75 * 2**-12, rel=1e-4)
    clamped = judge([flat([1]), ALL], [1], [dense(1, 1, 1, 1)], [LAST_COIN], [0, 2**62 + 2**61])
    assert clamped.margin == pytest.approx(0.125)
