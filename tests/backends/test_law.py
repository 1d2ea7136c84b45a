"""`sample` draws from, and records, the law that a few lines of plain Python derive."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from flashspec.contract import TILE, Backend, Dense, Domain, OneHot, Padded, Sampling, Status, Stream, Uniforms
from flashspec_numpy import _draw as numpy_draw
from flashspec_torch import _draw as torch_draw

VOCABULARIES = (1, 2, 31, 1023, 1024, 1025, 2049)
FLOATS = npt.NDArray[np.float64]


def oracle(row: FLOATS, t: float, k: int = 0, p: float = 1.0, low: float = 0.0) -> list[float]:
    """Probabilities of a row, by sorting pairs and adding exactly."""
    order = sorted(range(len(row)), key=lambda v: (-row[v], v))
    weight = {v: math.exp((row[v] - row[order[0]]) / t) for v in order}
    order = order[: k or None]
    if p < 1:
        total = math.fsum(weight[v] for v in order)
        for n in range(1, len(order) + 1):
            if math.fsum(weight[v] for v in order[:n]) >= p * total:
                order = order[:n]
                break
    order = [v for v in order if weight[v] >= low]
    mass = math.fsum(weight[v] for v in order)
    return [weight[v] / mass if v in set(order) else 0.0 for v in range(len(row))]


def rows_of(vocab: int, seed: int = 0) -> FLOATS:
    """A row of quarters (exact in float16), with ties."""
    return np.round(np.random.default_rng(seed).normal(0, 2, vocab) * 4) / 4


def recorded(backend: Backend, dense: Dense, temperature: float) -> FLOATS:
    """The law that a one-row record describes."""
    logits = backend.to_numpy(dense.logits).astype(np.float64)[0, 0]
    assert dense.stats is not None
    fields = (dense.stats.max, dense.stats.mass, dense.stats.cut_logit, dense.stats.cut_id)
    top, mass, cut, last = (float(backend.to_numpy(f)[0, 0]) for f in fields)
    kept = (logits > cut) | ((logits == cut) & (np.arange(logits.size) <= last))
    law: FLOATS = np.where(kept, np.exp((logits - top) / temperature), 0.0) / mass
    return law


@pytest.mark.clause("PRP-7", "FLT-2", "FLT-3", "FLT-4", "FLT-6", "TMP-1", "SMX-2")
@pytest.mark.parametrize("vocab", VOCABULARIES)
@pytest.mark.parametrize(
    ("t", "k", "p", "low"),
    [(0.7, 0, 1.0, 0.0), (1.3, 0, 0.6, 0.0), (0.7, 7, 1.0, 0.0), (1.3, 600, 0.95, 0.011), (0.7, 0, 0.999, 0.07)],
)
def test_the_record_describes_the_law(backend: Backend, vocab: int, t: float, k: int, p: float, low: float) -> None:
    """The recorded statistics rebuild the oracle's probabilities, and the log probability is one of them."""
    row = rows_of(vocab)
    sampling = Sampling.of(1, temperature=t, top_k=k, top_p=p, min_p=low)
    got = backend.sample(backend.asarray(row[None], "float32"), sampling, Stream.of([3], [9]).draw(Domain.DRAFT, 2))
    wanted = oracle(row, t, k, p, low)
    np.testing.assert_allclose(recorded(backend, got.proposal, t), wanted, rtol=3e-6, atol=1e-9)
    token = int(backend.to_numpy(got.tokens)[0])
    assert float(backend.to_numpy(got.logprobs)[0]) == pytest.approx(math.log(wanted[token]), abs=3e-6)


@pytest.mark.clause("SMP-1", "SMP-2", "SMP-3")
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_draws_are_the_inverse_cdf(backend: Backend, vocab: int) -> None:
    """Evenly spread uniforms choose the token that the running sum of the oracle passes first."""
    n = 64
    row = rows_of(vocab, 1)
    row[row < -1] = -np.inf
    row[0] = -np.inf if vocab > 1 else 0.0
    row[vocab // 2] = 1.0
    integers = (np.arange(n, dtype=np.uint64) << np.uint64(58)) + np.uint64(12345 << 40)
    edges = np.cumsum(oracle(row, 0.7))
    uniforms = ((integers >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    clear = np.abs(edges[:, None] - uniforms).min(0) > 1e-7
    rows = backend.asarray(np.tile(row, (n, 1)), "float64")
    drawn = backend.sample(rows, Sampling.of(n, temperature=0.7), Uniforms(backend.asarray(integers, "uint64")))
    wanted = np.searchsorted(edges, uniforms, side="right")
    assert clear.sum() > n // 2
    np.testing.assert_array_equal(backend.to_numpy(drawn.tokens)[clear], wanted[clear])


@pytest.mark.clause("SMP-2")
@pytest.mark.parametrize("vocab", [TILE, TILE + 1, 3 * TILE])
def test_the_last_uniform_takes_a_token_with_mass(backend: Backend, vocab: int) -> None:
    """The largest integer draws the last token of positive mass, the smallest one the first."""
    row = np.full((2, vocab), -np.inf)
    row[:, 5:37] = 0.1
    integers = backend.asarray(np.array([0, 2**64 - 1], np.uint64), "uint64")
    drawn = backend.sample(backend.asarray(row, "float32"), Sampling.of(2, temperature=1.3), Uniforms(integers))
    assert backend.to_numpy(drawn.tokens).tolist() == [5, 36]


@pytest.mark.clause("FLT-3", "FLT-6")
def test_ties_at_the_cut_go_to_lower_ids(backend: Backend) -> None:
    """Of 3,000 equal tokens a nucleus keeps the first ids."""
    row = np.zeros((1, 3000))
    sampling = Sampling.of(1, temperature=0.7, top_p=0.251)
    last = Uniforms(backend.asarray(np.array([2**64 - 1], np.uint64), "uint64"))
    drawn = backend.sample(backend.asarray(row, "float32"), sampling, last)
    assert backend.to_numpy(drawn.tokens).tolist() == [752]


@pytest.mark.clause("TMP-1", "SMX-1")
@pytest.mark.parametrize("t", [1e-300, 1e-38, 1e-8, 1e30])
def test_extreme_temperatures_stay_laws(backend: Backend, t: float) -> None:
    """Tiny temperatures share the mass among the largest logits; huge ones among all."""
    row = np.array([[1.0, 3.0, 3.0, -2.0]])
    sampling = Sampling.of(1, temperature=t)
    got = backend.sample(backend.asarray(row, "float32"), sampling, Stream.of([1], [1]).draw(Domain.DRAFT))
    share = 0.5 if t < 1 else 0.25
    assert float(backend.to_numpy(got.logprobs)[0]) == pytest.approx(math.log(share), abs=1e-6)
    assert int(backend.to_numpy(got.status)[0]) == Status.OK


@pytest.mark.clause("TMP-2", "PRP-4")
def test_greedy_rows_record_a_point_mass(backend: Backend) -> None:
    """At temperature 0 the lowest-id maximum is emitted with log probability 0, whatever the filters."""
    row = np.array([[1.0, 3.0, 3.0, -2.0]])
    sampling = Sampling.of(1, temperature=0.0, top_p=0.2, min_p=0.5)
    got = backend.sample(backend.asarray(row, "float32"), sampling, Stream.of([1], [1]).draw(Domain.DRAFT))
    assert backend.to_numpy(got.tokens).tolist() == [1]
    assert backend.to_numpy(got.logprobs).tolist() == [0.0]


@pytest.mark.clause("SMP-1", "SMP-2")
@pytest.mark.parametrize(
    ("masses", "edges", "threshold", "wanted"),
    [
        ([1.0, 0.0, 1.0], [1.0, 1.0, 2.0], 1.0, 2),
        ([1.0, 0.0, 1.0], [1.0, 1.0, 2.0], np.nextafter(1.0, 0.0), 0),
        ([1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 2.0, 2.0], 2.0, 2),
        ([0.0, 1.0], [0.0, 1.0], 0.0, 1),
    ],
)
def test_edges_are_exclusive(masses: list[float], edges: list[float], threshold: float, wanted: int) -> None:
    """A threshold on an edge belongs to the next token with mass; past the end, to the last one with mass."""
    m, e = np.array(masses), np.array(edges)
    assert numpy_draw._first(m, e, threshold) == wanted
    assert torch_draw._first_one(m, e, threshold) == wanted
    one = torch.tensor([threshold], dtype=torch.float64)
    assert int(torch_draw._first(torch.tensor([masses]), torch.tensor([edges]).double(), one)) == wanted


@pytest.mark.clause("SMP-2")
def test_a_scan_that_wobbles_chooses_no_empty_token() -> None:
    """A parallel scan may round a running sum up at a token without mass; the batch path passes it over."""
    masses = torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64)
    edges = torch.tensor([[1.0, 1.0000001, 2.0]], dtype=torch.float64)
    assert int(torch_draw._first(masses, edges, torch.tensor([1.0], dtype=torch.float64))) == 2


@pytest.mark.clause("PTH-2", "PTH-3")
@pytest.mark.parametrize("vocab", [5, 1023, 2049])
@pytest.mark.parametrize("knobs", [{}, {"top_p": 0.9}, {"top_k": 3}], ids=str)
def test_path_is_plain_sampling_bit_for_bit(backend: Backend, vocab: int, knobs: dict[str, Any]) -> None:
    """64 rows judged at once, eight by eight, give what ``sample`` draws from each row with the same counters."""
    rows = np.stack([rows_of(vocab, seed) for seed in range(64)])
    position = 2**32 - 3
    stream = Stream.of([9] * 8, [position + 0] * 8, range(8))
    after = np.array([(position + j) % 2**32 for j in range(8)])
    alone = Stream.of([9] * 64, np.tile(after, 8).tolist(), np.repeat(np.arange(8), 8).tolist())
    drawn = backend.sample(
        backend.asarray(rows, "float32"), Sampling.of(64, temperature=1.3, **knobs), alone.draw(Domain.BONUS)
    )
    text = backend.to_numpy(drawn.tokens).reshape(8, 8)
    judged = backend.verify(
        backend.asarray(rows.reshape(8, 8, vocab), "float32"),
        backend.asarray(text[:, :-1], "int64"),
        OneHot(),
        Padded(),
        Sampling.of(8, temperature=1.3, **knobs),
        stream,
        "path",
    )
    assert backend.to_numpy(judged.tokens).tolist() == text.tolist()
    np.testing.assert_array_equal(backend.to_numpy(judged.logprobs).ravel(), backend.to_numpy(drawn.logprobs))


def two_tokens(backend: Backend, seed: int, points: int) -> tuple[FLOATS, FLOATS]:
    """The law of two tokens out of ``block`` over all drafts and evenly spread numbers, and the target's."""
    rng, vocab = np.random.default_rng(seed), 3
    one, two, three = (np.full(vocab, 0.5),) * 3
    p = [rng.dirichlet(one), rng.dirichlet(two, vocab), rng.dirichlet(three, (vocab, vocab))]
    q = [rng.dirichlet(one), rng.dirichlet(two, vocab)]
    ratio = 1.2207440846057596  # the root of x**4 = x + 1: multiples of its inverse powers fill the cube evenly
    grid = (np.arange(points)[:, None] * ratio ** -np.arange(1.0, 4.0) + 0.5) % 1
    coins = backend.asarray((grid[:, :2] * 2**32).astype(np.uint32), "uint32")
    integers = backend.asarray((np.repeat(grid[:, 2:], 3, 1) * 2**63).astype(np.uint64) * np.uint64(2), "uint64")
    law = np.zeros((vocab, vocab))
    for a, b in np.ndindex(vocab, vocab):
        rows, dense = np.log(np.stack([p[0], p[1][a], p[2][a, b]])), np.log(np.stack([q[0], q[1][a]]))
        got = backend.verify(
            backend.asarray(np.tile(rows, (points, 1, 1)), "float64"),
            backend.asarray(np.tile(np.array([a, b]), (points, 1)), "int64"),
            Dense(backend.asarray(np.tile(dense, (points, 1, 1)), "float64"), Sampling.of(points)),
            Padded(),
            Sampling.of(points),
            Uniforms(integers, coins),
            "block",
        )
        weight = q[0][a] * q[1][a, b] / points
        for first, second in backend.to_numpy(got.tokens)[:, :2]:
            law[first] += weight * (p[1][first] if second < 0 else np.arange(vocab) == second)
    return law, p[0][:, None] * p[1]


@pytest.mark.clause("BLK-1", "BLK-2")
def test_block_keeps_the_law_of_two_tokens(backend: Backend) -> None:
    """Over all drafts and 600 evenly spread coins and integers, two tokens follow the target to 0.008."""
    law, target = two_tokens(backend, seed=12, points=600)
    np.testing.assert_allclose(law, target, atol=0.008)
