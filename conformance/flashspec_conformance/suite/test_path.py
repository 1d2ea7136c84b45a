"""Sample and compare: clauses PTH."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.contract import Domain, Stream
from flashspec_conformance import generate, rounds
from flashspec_conformance.build import knobs_sampling, record_dtype, verify
from flashspec_conformance.case import Request
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.drafted import drafted
from flashspec_conformance.probes import HOT, LAST_COIN, WARM, batch, flat, integer, request, single
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:path")

UNIFORMS = (0.003, 0.107, 0.311, 0.511, 0.711, 0.907)
GAMMA = 4
EDGES = [(5, 3, 4), (1, (1 << 32) - 1, 0), (7, (1 << 32) - 3, 9), ((1 << 64) - 1, 1 << 31, (1 << 32) - 1)]


def _sampled(subject: Subject, chain: Request) -> tuple[int, ...]:
    """What the rows of a chain give by themselves: each alone, without drafts."""
    alone = [
        attrs.evolve(
            chain,
            rows=chain.rows[j : j + 1],
            drafts=(),
            coins=(),
            integers=chain.integers[j : j + 1],
            kind="onehot",
            sparse_ids=None,
            sparse_logprobs=None,
            dense_logits=None,
        )
        for j in range(chain.length)
    ]
    got = verify(subject, batch(*alone, dtype=record_dtype(subject), method="path"))
    return tuple(int(t) for t in got.tokens[:, 0])


def _spread(chain: Request, seed: int) -> Request:
    """The chain with different integers at every place."""
    drawn = np.random.default_rng(seed).integers(0, 1 << 64, chain.length, np.uint64)
    return attrs.evolve(chain, integers=tuple(int(x) for x in drawn))


@pytest.mark.clause("PTH-1")
@pytest.mark.parametrize("u", UNIFORMS)
@pytest.mark.parametrize("draft", [0, 1, 2])
def test_a_token_is_drawn_from_the_law_and_compared(subject: Subject, layout: str, draft: int, u: float) -> None:
    """The token is the inverse CDF of row 0; the draft is accepted if and only if it is that token."""
    rows = np.stack([flat(5, 0, 1, 2), flat(5, 3, 4)])
    case = single(rows, (draft,), integers=(integer(u), integer(1 - u)), knobs=WARM, layout=layout, method="path",
                  dtype=subject.dtype)  # fmt: skip
    got = check(subject, case)
    assert got.tokens[0, 0] == int(u * 3)
    assert got.num_accepted[0] == (draft == int(u * 3))


@pytest.mark.clause("PTH-1")
@pytest.mark.parametrize("agreeing", range(GAMMA + 1))
@pytest.mark.parametrize("knobs", [WARM, HOT], ids=["0.7", "1.3"])
def test_the_drafts_before_the_first_difference_count(subject: Subject, kind: str, agreeing: int, knobs: Any) -> None:
    """The first draft that differs ends the call with the token of its row, although later ones agree again."""
    dtype, judged = record_dtype(subject), []
    for seed in range(6):
        chain = _spread(drafted(kind, seed, GAMMA, 5, dtype, knobs=knobs), seed)
        text = _sampled(subject, chain)
        wrong = ((text[agreeing] + 1) % 5,) if agreeing < GAMMA else ()
        judged.append(attrs.evolve(chain, drafts=(*text[:agreeing], *wrong, *text[agreeing + 1 : GAMMA])))
    got = check(subject, batch(*judged, dtype=dtype, method="path"), tally=(tally := Tally()))
    tally.check()
    assert got.num_accepted.tolist() == [agreeing] * 6
    assert got.num_emitted.tolist() == [agreeing + 1] * 6


@pytest.mark.clause("PTH-1", "PTH-2", "GRD-1", "LGP-1")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shape", [(5, 3, 3), (2, 8, 2), (3, 2, 1030)], ids=str)
def test_random_calls(subject: Subject, layout: str, dtype: str, shape: tuple[int, int, int], seed: int) -> None:
    """Calls with every kind of proposal and filter, greedy requests among them, give the spec's tokens."""
    if shape[2] > 1024 and seed > 1:
        return
    case = generate.case(np.random.default_rng([seed, *shape]), subject, shape, dtype, layout)
    tally = Tally()
    check(subject, attrs.evolve(case, method="path"), tally=tally)
    tally.check()


@pytest.mark.clause("PTH-2")
@pytest.mark.parametrize("seed", range(4))
def test_no_coin_matters(subject: Subject, seed: int) -> None:
    """The lowest and the highest coins, and none at all, give the same verdict."""
    dtype = record_dtype(subject)
    chain = _spread(drafted("onehot", seed, GAMMA, 3, dtype, knobs=HOT), seed)
    rows = []
    for coins in ((0,) * GAMMA, (LAST_COIN,) * GAMMA, ()):
        case = batch(attrs.evolve(chain, coins=coins), dtype=dtype, method="path")
        rows.append(check(subject, case, tally=Tally()).row(0))
    assert rows[0] == rows[1] == rows[2]


BROKEN: dict[str, dict[str, Any]] = {
    "dense": {"dense_logits": np.full((GAMMA, 3), np.nan)},
    "sparse": {"sparse_ids": np.full((GAMMA, 2), -1), "sparse_logprobs": np.full((GAMMA, 2), np.nan)},
    "onehot": {},
}


@pytest.mark.clause("PTH-2")
@pytest.mark.parametrize("seed", range(6))
def test_no_proposal_matters(subject: Subject, kind: str, seed: int) -> None:
    """A proposal that is no law changes neither the tokens nor the status."""
    dtype = record_dtype(subject)
    good = _spread(drafted("onehot", seed, GAMMA, 3, dtype, knobs=WARM), seed)
    broken = attrs.evolve(good, kind=kind, **BROKEN[kind])
    sampled = attrs.evolve(drafted(kind, seed, GAMMA, 3, dtype, knobs=WARM), integers=good.integers, drafts=good.drafts)
    got = check(subject, batch(good, broken, sampled, dtype=dtype, method="path"), tally=Tally())
    assert got.row(0) == got.row(1) == got.row(2)
    assert got.status.tolist() == [0, 0, 0]


@pytest.mark.clause("PTH-2")
@pytest.mark.parametrize("seed", range(4))
def test_drafts_only_say_how_far_the_text_goes(subject: Subject, layout: str, seed: int) -> None:
    """Whatever the drafts, what is emitted is the beginning of what plain sampling gives with the same integers."""
    dtype = record_dtype(subject)
    chain = _spread(drafted("onehot", seed, GAMMA, 3, dtype, knobs=HOT), seed)
    text = _sampled(subject, chain)
    rng = np.random.default_rng(seed)
    judged = [attrs.evolve(chain, drafts=tuple(int(x) for x in rng.integers(-1, 3, GAMMA))) for _ in range(20)]
    got = check(subject, batch(*judged, dtype=dtype, layout=layout, method="path"), tally=Tally())
    for b in range(20):
        tokens = got.row(b)[0]
        assert tokens == text[: len(tokens)]


@pytest.mark.clause("PTH-1", "STS-4", "LAY-2")
@pytest.mark.parametrize("draft", [-1, -2, 5, 1 << 40], ids=str)
@pytest.mark.parametrize("place", range(GAMMA))
def test_a_draft_that_is_none_ends_the_chain(subject: Subject, layout: str, place: int, draft: int) -> None:
    """It is reported if it is out of range and the drafts before it agree, and not otherwise."""
    dtype = record_dtype(subject)
    chain = _spread(drafted("onehot", 3, GAMMA, 5, dtype, knobs=WARM), 8)
    text = _sampled(subject, chain)
    ended = (*text[:place], draft, *text[place + 1 : GAMMA])
    early = ((text[0] + 1) % 5, *ended[1:]) if place else ended
    judged = [attrs.evolve(chain, drafts=d) for d in (ended, early)]
    got = check(subject, batch(*judged, dtype=dtype, layout=layout, method="path"), tally=Tally())
    bit = 0 if draft == -1 else 8
    assert got.num_accepted.tolist() == [place, 0]
    assert got.status.tolist() == [bit, 0 if place else bit]


@pytest.mark.clause("PTH-1", "STS-1", "STS-2", "STS-3")
@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("place", range(GAMMA + 1))
def test_a_row_without_a_law_stops_the_text_when_it_is_reached(subject: Subject, place: int, what: float) -> None:
    """The tokens before it are emitted; behind a difference it is not noticed."""
    dtype = record_dtype(subject)
    chain = _spread(drafted("onehot", 5, GAMMA, 5, dtype, knobs=WARM), 9)
    text, rows = _sampled(subject, chain), chain.rows.copy()
    rows[place] = what
    reached = attrs.evolve(chain, rows=rows, drafts=text[:GAMMA])
    early = attrs.evolve(reached, drafts=((text[0] + 1) % 5, *text[1:GAMMA]))
    got = check(subject, batch(reached, early, dtype=dtype, method="path"), tally=Tally())
    assert got.num_emitted.tolist() == [place, 1 if place else 0]
    assert (got.status[1] == 0) == (place > 0)


@pytest.mark.clause("PTH-3", "RNG-1", "RNG-2")
@pytest.mark.parametrize("stream", EDGES, ids=str)
def test_place_j_reads_the_number_of_position_j(subject: Subject, layout: str, stream: tuple[int, int, int]) -> None:
    """Wide flat rows show the integer of each place, over the wrap of the position at 2^32 too."""
    seed, position, sequence = stream
    rows = np.zeros((4, 2048))
    at = [((position + j) % (1 << 32)) for j in range(4)]
    plain = [attrs.evolve(request(rows[:1], knobs=WARM), seed=seed, position=p, sequence=sequence) for p in at]
    text = check(subject, batch(*plain, dtype=subject.dtype, stream=True, method="path"), exact=True).tokens[:, 0]
    guess = tuple(int(t) for t in text[:3])
    judged = attrs.evolve(request(rows, guess, knobs=WARM), seed=seed, position=position, sequence=sequence)
    case = batch(judged, dtype=subject.dtype, layout=layout, stream=True, method="path")
    got = check(subject, case, exact=True)
    assert got.tokens[0].tolist() == text.tolist()
    assert len(set(text.tolist())) > 1


@pytest.mark.clause("RND-2", "PTH-3")
@pytest.mark.parametrize("stream", EDGES, ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.8], ids=["equal", "near"])
def test_drafts_may_be_drawn_with_the_numbers_of_the_path(
    subject: Subject, stream: tuple[int, int, int], spread: float
) -> None:
    """Drafts that ``sample`` draws with a row's own integer are accepted where both laws give the same token."""
    seed, position, sequence = stream
    dtype = record_dtype(subject)
    chain = drafted("onehot", seed % 97, GAMMA, 5, dtype, knobs=WARM)
    noise = spread * np.random.default_rng(3).normal(0.0, 1.0, (GAMMA, 5))
    at = Stream.of([seed] * GAMMA, [(position + j) % (1 << 32) for j in range(GAMMA)], [sequence] * GAMMA)
    logits = subject.put(chain.rows[:GAMMA] + noise, dtype)
    drawn = subject.backend.sample(logits, knobs_sampling([WARM] * GAMMA), at.draw(Domain.BONUS))
    drafts = tuple(int(t) for t in subject.get(drawn.tokens))
    judged = attrs.evolve(chain, drafts=drafts, seed=seed, position=position, sequence=sequence)
    empty = attrs.evolve(judged, drafts=(-1,) * GAMMA)
    got = check(subject, batch(judged, empty, dtype=dtype, stream=True, method="path"), tally=Tally())
    assert got.tokens[0, 0] == got.tokens[1, 0]
    if not spread:
        assert got.num_accepted[0] == GAMMA


@pytest.mark.clause("PTH-3", "PTH-2")
@pytest.mark.needs("method:token")
@pytest.mark.parametrize("stream", EDGES, ids=str)
def test_the_text_of_rounds_is_plain_sampling(subject: Subject, stream: tuple[int, int, int]) -> None:
    """Right, wrong, partly right and no drafts: in rounds of any length the text is that of plain sampling."""
    toy = rounds.Toy(6, stream[0] % 1000)
    plain = rounds.play(subject, "token", toy, rounds.nothing, 14, stream).text
    every = {
        "none": rounds.nothing,
        "right": rounds.scripted(plain, 4),
        "lucky": rounds.lucky(0.7, 1),
        "unlucky": rounds.lucky(0.0, 2, places=2),
        "missing": lambda toy, text: (plain[len(text)], -1, 0) if len(text) < 14 else (),
    }
    lengths = set()
    for name, drafts in every.items():
        played = rounds.play(subject, "path", toy, drafts, 14, stream)
        assert played.text[:14] == plain[:14], f"{name} drafts changed the text"
        lengths |= set(played.lengths)
    assert max(lengths) > 3


@pytest.mark.clause("PTH-2")
@pytest.mark.parametrize("seed", range(3))
def test_the_kind_of_proposal_never_changes_the_text(subject: Subject, kind: str, seed: int) -> None:
    """Rounds with the same drafts under any kind of proposal give one text."""
    toy, drafts = rounds.Toy(4, seed), rounds.lucky(0.6, seed)
    plain = rounds.play(subject, "path", toy, rounds.nothing, 10, (seed, 6, 1), knobs=HOT).text
    assert rounds.play(subject, "path", toy, drafts, 10, (seed, 6, 1), kind, HOT).text[:10] == plain[:10]
