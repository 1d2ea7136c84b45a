"""Where filters cut: few candidates and many, against a sort, ties included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flashspec.contract import Backend, OneHot, Padded, Sampling, Stream, Uniforms

CASES = {
    "few candidates": ("normal", 6.0, 9, 1.0, 0.0),
    "few candidates, all filters": ("normal", 4.0, 9, 0.9, 0.01),
    "few candidates, top_p": ("normal", 6.0, 0, 0.6, 0.0),
    "many candidates, more than parts": ("normal", 6.0, 40, 0.95, 0.0),
    "many candidates": ("normal", 2.0, 0, 0.3, 0.0),
    "many ties": ("rounded", 3.0, 0, 0.5, 0.02),
    "many ties, top_k among them": ("rounded", 3.0, 700, 0.9, 0.0),
    "flat": ("normal", 0.3, 0, 0.7, 0.0),
    "flat, top_k": ("normal", 1.0, 700, 0.95, 0.0),
    "flat, top_k alone": ("normal", 1.0, 1800, 1.0, 0.0),
    "equal": ("equal", 0.0, 400, 0.5, 0.0),
    "equal, top_p": ("equal", 0.0, 0, 0.37, 0.0),
    "top_k of the whole vocabulary": ("normal", 6.0, 12000, 0.2, 0.2),
    "min_p alone": ("normal", 3.0, 0, 1.0, 0.05),
    "min_p of a flat row": ("normal", 1.0, 0, 1.0, 0.05),
    "top_p close to 1": ("normal", 1.0, 0, 0.999, 0.0),
    "the first token": ("normal", 1.0, 1, 1.0, 0.0),
    "a thousandth": ("normal", 1.0, 0, 0.001, 0.0),
    "two heights": ("steps", 1.0, 0, 0.9012, 0.0),
    "barred": ("barred", 1.0, 0, 0.8, 0.0),
    "barred, top_k of all that is left": ("barred", 1.0, 11500, 1.0, 0.0),
}
VOCAB = 12000
TEMPERATURE = 1.3


def rows(kind: str, spread: float, vocab: int = VOCAB) -> npt.NDArray[np.float64]:
    """Two rows of logits that float32 holds."""
    rng = np.random.default_rng(5)
    values = rng.normal(0, spread, (2, vocab))
    if kind == "equal":
        values[:] = 0.0
    elif kind == "rounded":
        values = np.round(values * 2) / 2
    elif kind == "steps":
        values = np.where(rng.random((2, vocab)) < 0.6, 1.0, np.nextafter(np.float32(1.0), np.float32(0.0)))
    elif kind == "barred":
        values[rng.random((2, vocab)) < 0.1] = -np.inf
    return values.astype(np.float32).astype(np.float64)


def order_of(row: npt.NDArray[np.float64], temperature: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Ids in the order (-logit, id), and the sums of their weights."""
    order = np.lexsort((np.arange(row.size), -row))[: int((row > -np.inf).sum())]
    return order, np.cumsum(np.exp((row[order] - row[order[0]]) / temperature))


def expected(order: npt.NDArray[np.int64], sums: npt.NDArray[np.float64], k: int, p: float, min_p: float) -> int:
    """How many tokens of the order are kept."""
    count = min(k or order.size, order.size)
    if p < 1:
        count = min(count, int(np.searchsorted(sums, p * sums[count - 1] * (1 - 1e-12))) + 1)
    if min_p:
        count = min(count, int((np.diff(sums, prepend=0.0) >= min_p * (1 - 1e-12)).sum()))
    return count


@pytest.mark.clause("FLT-1", "FLT-2", "FLT-3", "FLT-4", "FLT-6", "SMX-2")
@pytest.mark.parametrize("name", list(CASES))
def test_a_cut_is_where_a_sort_would_put_it(backend: Backend, device: str, name: str) -> None:
    """The mass and the tokens that the record of ``sample`` keeps."""
    kind, spread, k, p, min_p = CASES[name]
    check(backend, device, rows(kind, spread), k, p, min_p, "float32")


@pytest.mark.clause("FLT-6", "SMX-2")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("k", "p"), [(0, 0.95), (0, 0.31), (9000, 0.8), (40, 0.9)])
def test_narrow_logits_are_cut_between_their_own_values(
    backend: Backend, device: str, dtype: str, k: int, p: float
) -> None:
    """Positive and negative cuts of flat rows whose every logit many tokens share."""
    given = backend.asarray(rows("normal", 0.3), dtype, device)
    check(backend, device, backend.to_numpy(given).astype(np.float64), k, p, 0.0, dtype)


def check(
    backend: Backend, device: str, values: npt.NDArray[np.float64], k: int, p: float, min_p: float, dtype: str,
    slack: int = 0,
) -> None:  # fmt: skip
    """Sample from two rows, and compare the record with a sort; ``slack`` tokens may be kept more or less."""
    sampling = Sampling.of(2, temperature=TEMPERATURE, top_k=k, top_p=p, min_p=min_p)
    integers = Uniforms(backend.asarray(np.array([1 << 62, 3 << 62], np.uint64), "uint64", device))
    drawn = backend.sample(backend.asarray(values, dtype, device), sampling, integers)
    stats: Any = drawn.proposal.stats
    for b in range(2):
        order, sums = order_of(values[b], TEMPERATURE)
        mass, cut_logit, cut_id = (
            float(backend.to_numpy(v)[b, 0]) for v in (stats.mass, stats.cut_logit, stats.cut_id)
        )
        row = values[b][order]
        kept = int(((row > cut_logit) | ((row == cut_logit) & (order <= cut_id))).sum())
        assert abs(kept - expected(order, sums, k, p, min_p)) <= slack
        assert mass == pytest.approx(sums[kept - 1], rel=2e-6)
        token = int(backend.to_numpy(drawn.tokens)[b])
        assert token in order[:kept]
        place = np.sort(order[:kept])
        weights = np.exp((values[b][place] - row[0]) / TEMPERATURE)
        edges = np.cumsum(weights) / weights.sum()
        assert abs(np.searchsorted(edges, (0.25, 0.75)[b]) - np.searchsorted(place, token)) <= 1


@pytest.mark.clause("PUR-2", "RNG-4", "FLT-1")
def test_a_cut_does_not_depend_on_the_other_rows(backend: Backend, device: str) -> None:
    """Rows with few candidates, many, and no filter, alone and together: the same tokens and log-probabilities."""
    values = np.concatenate([rows(kind, s, 5000) for kind, s in (("normal", 6.0), ("normal", 0.3), ("rounded", 2.0))])
    given = backend.asarray(values.reshape(3, 2, 5000), "float32", device)
    drafts = backend.asarray(values.reshape(3, 2, 5000)[:, :1].argmax(-1), "int64", device)
    heat, k, p = [0.7, 1.3, 0.7], [9, 0, 0], [0.9, 0.8, 1.0]

    def judged(batch: slice) -> list[bytes]:
        sampling = Sampling.of(len(k[batch]), temperature=heat[batch], top_k=k[batch], top_p=p[batch])
        stream = Stream.of([1, 2, 3][batch], [4, 5, 6][batch], [7, 8, 9][batch])
        found = backend.verify(given[batch], drafts[batch], OneHot(), Padded(), sampling, stream)
        return [row.tobytes() for row in (*backend.to_numpy(found.tokens), *backend.to_numpy(found.logprobs))]

    together = judged(slice(0, 3))
    for b in range(3):
        assert judged(slice(b, b + 1)) == [together[b], together[3 + b]]


@pytest.mark.clause("RES-1", "PRP-1", "FLT-1")
@pytest.mark.parametrize(
    ("method", "uniform", "token"), [("token", 0.4, 7), ("token", 0.6, 1030), ("block", 0.6, 1030)]
)
def test_a_residual_has_only_kept_tokens(
    backend: Backend, device: str, method: str, uniform: float, token: int
) -> None:
    """A rejected draft, one kept token beside it in its tile among many that are cut, and one in the next tile."""
    values = np.zeros((1, 2, 1100))
    values[0, 0, [3, 7, 1030]] = 2.0
    given, drafts = backend.asarray(values, "float32", device), backend.asarray(np.array([[3]]), "int64", device)
    draws = backend.asarray(np.array([[int(uniform * 2**64)] * 2], np.uint64), "uint64", device)
    coins = backend.asarray(np.array([[2**32 - 1]], np.uint32), "uint32", device)
    sampling = Sampling.of(1, temperature=0.7, top_k=3)
    got = backend.verify(given, drafts, OneHot(), Padded(), sampling, Uniforms(draws, coins), method)
    assert backend.to_numpy(got.tokens).tolist() == [[token, -1]]
    assert backend.to_numpy(got.logprobs)[0, 0] == pytest.approx(-np.log(3), abs=1e-6)
