"""Drawing tokens: clauses UNI-2, SMP and the plain sampling of ``sample``."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance.case import F64, Case, Knobs
from flashspec_conformance.compare import TOLERANCE, Tally, check
from flashspec_conformance.oracle import row_law
from flashspec_conformance.probes import LAST, flat, integer, log_row, request, row
from flashspec_conformance.subject import Subject

pytestmark = pytest.mark.needs("method:token")

TILE = 1024
VOCABULARIES = (1, 2, 31, 1023, 1024, 1025, 2049, 8193)


def _aimed(subject: Subject, logits: F64, tokens: list[int], knobs: Knobs) -> None:
    """Draw with uniforms in the middle of the given tokens' places, and require these tokens."""
    sums = np.cumsum([float(x) for x in row_law(logits, knobs)])
    drawn = []
    for token in tokens:
        middle = (sums[token] + (sums[token - 1] if token else 0.0)) / 2
        drawn.append(request(logits[None], integers=(integer(middle),), knobs=knobs))
    got = check(subject, Case(tuple(drawn), logits.shape[0], subject.dtype))
    assert got.tokens[:, 0].tolist() == tokens


def _around(*edges: int, vocab: int) -> list[int]:
    near = {edge + side for edge in edges for side in (-1, 0, 1)} | {0, vocab - 1}
    return sorted(v for v in near if 0 <= v < vocab)


@pytest.mark.clause("SMP-1", "SMP-3")
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_every_tile_edge_is_drawn_where_the_spec_draws_it(subject: Subject, vocab: int) -> None:
    """Tokens at both sides of each tile edge are drawn by the uniforms in the middle of their places."""
    rng = np.random.default_rng(vocab)
    logits = log_row(rng.uniform(0.5, 1.5, vocab), 0.7, "float16")
    _aimed(subject, logits, _around(TILE, 2 * TILE, 8 * TILE, vocab=vocab), Knobs(0.7))


@pytest.mark.clause("SMP-1", "SMP-3", "SMP-2")
def test_a_wide_vocabulary_with_few_live_tokens_is_drawn_right(subject: Subject) -> None:
    """With V = 151,936 and mass at tile edges only, each live token has its place."""
    vocab = 151_936
    live = [0, 1023, 1024, 2047, 2048, 77_000, 100_351, 100_352, 151_935]
    logits = row(vocab, {v: 0.125 * n for n, v in enumerate(live)})
    _aimed(subject, logits, live, Knobs(1.3))


@pytest.mark.clause("SMP-3", "ACC-1", "RES-1")
@pytest.mark.parametrize("vocab", VOCABULARIES[1:])
def test_drafts_are_judged_and_residuals_drawn_across_tiles(subject: Subject, kind: str, vocab: int) -> None:
    """A chain of two drafts in wide rows ends as in the spec."""
    rng = np.random.default_rng(vocab)
    judged = []
    for u in (0.21, 0.83):
        rows = log_row(rng.dirichlet(np.full(vocab, 0.5), 3) + 1e-9, 1.3, "float16")
        drafts = (int(np.argmax(rows[0])), int(rng.integers(vocab)))
        listed = np.array([[x, *(v for v in (0, vocab - 1) if v != x)][:2] for x in drafts])
        near = log_row(rng.dirichlet(np.full(vocab, 0.5), 2) + 1e-9, 1.0, "float16")
        own = {
            "onehot": {},
            "sparse": {
                "sparse_ids": listed,
                "sparse_logprobs": np.log(np.array([[0.75, 0.25]] * 2)).astype(np.float32),
            },
            "dense": {"dense_logits": near, "dense_knobs": Knobs(1.3)},
        }[kind]
        coins = (int(0.01 * 2**32), int(u * 2**32))
        judged.append(
            request(rows, drafts, kind=kind, coins=coins, integers=(integer(u),) * 3, knobs=Knobs(1.3), **own)
        )
    check(subject, Case(tuple(judged), vocab, subject.dtype), tally=Tally())


@pytest.mark.clause("UNI-2", "SMP-1")
@pytest.mark.parametrize("share", [2, 4, 8])
def test_the_edges_of_a_dyadic_law_are_exact(subject: Subject, share: int) -> None:
    """The last integer below k / share draws token k - 1 and the next one draws token k; low bits do not count."""
    logits = flat(share + 2, *range(1, share + 1))[None]
    step = (1 << 64) // share
    integers = [0, 4095, *(k * step + d for k in range(1, share) for d in (-1, 0)), LAST]
    drawn = [request(logits, integers=(i,), knobs=Knobs(0.7)) for i in integers]
    got = check(subject, Case(tuple(drawn), share + 2, subject.dtype), exact=True)
    assert got.tokens[:, 0].tolist() == [1 + i // step for i in integers]


@pytest.mark.clause("UNI-2")
def test_all_52_high_bits_count(subject: Subject) -> None:
    """Integers that agree in their high or in their low half draw different tokens."""
    logits = np.zeros((1, 2048))
    words = [(0x1234_5678, 0), (0, 0x1234_5678), (0xFFFF_FFFF, 0), (0, 0xFFFF_FFFF), (0x8000_0000, 0xFFFF_FFFF)]
    drawn = [request(logits, integers=((high << 32) | low,), knobs=Knobs(1.3)) for high, low in words]
    got = check(subject, Case(tuple(drawn), 2048, subject.dtype), exact=True)
    assert got.tokens[:, 0].tolist() == [high >> 21 for high, _ in words]


@pytest.mark.clause("UNI-2", "SMP-1")
@pytest.mark.parametrize("share", [3, 5, 7, 11, 13])
def test_a_uniform_just_outside_the_tolerance_of_an_edge_decides(subject: Subject, share: int) -> None:
    """Draws 1.1 tolerances from each edge of equal tokens: coarse uniforms (16 bits) and sloppy sums miss."""
    edges = [k / share + side * 1.1 * TOLERANCE for k in range(1, share) for side in (-1, 1)]
    drawn = [request(np.zeros((1, share)), integers=(integer(u),), knobs=Knobs(1.3)) for u in edges]
    check(subject, Case(tuple(drawn), share, subject.dtype))


@pytest.mark.clause("SMP-2", "OUT-2")
@pytest.mark.parametrize("vocab", [3, 33, 1025, 2500])
def test_the_first_and_last_uniform_draw_a_live_token(subject: Subject, vocab: int) -> None:
    """Integers 0 and 2^64 - 1 draw the first and the last token of positive mass, never an end of the row."""
    first, last = vocab // 3, vocab // 3 + 1
    logits = flat(vocab, first, last)[None]
    drawn = [request(logits, integers=(i,), knobs=Knobs(0.7)) for i in (0, LAST)]
    got = check(subject, Case(tuple(drawn), vocab, subject.dtype), exact=True)
    assert got.tokens[:, 0].tolist() == [first, last]
