"""Where filters cut: each of the three searches against a sort, ties included."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from flashspec.contract import Backend, Sampling, Uniforms

CASES = {
    "few candidates": ("normal", 6.0, 20, 1.0, 0.0),
    "few candidates, all filters": ("normal", 4.0, 40, 0.9, 0.01),
    "lists": ("normal", 2.0, 0, 0.3, 0.0),
    "lists, many ties": ("rounded", 3.0, 0, 0.5, 0.02),
    "whole row": ("normal", 0.3, 0, 0.7, 0.0),
    "whole row, top_k": ("normal", 1.0, 700, 0.95, 0.0),
    "whole row of ties": ("equal", 0.0, 400, 0.5, 0.0),
    "top_k of the whole vocabulary": ("normal", 6.0, 2600, 0.2, 0.2),
    "min_p alone": ("normal", 3.0, 0, 1.0, 0.05),
}
VOCAB = 2600
TEMPERATURE = 1.3


def rows(kind: str, spread: float) -> npt.NDArray[np.float64]:
    """Two rows of logits that float32 holds."""
    rng = np.random.default_rng(5)
    values = np.zeros((2, VOCAB)) if kind == "equal" else rng.normal(0, spread, (2, VOCAB))
    return (np.round(values * 2) / 2 if kind == "rounded" else values).astype(np.float32).astype(np.float64)


def expected(row: npt.NDArray[np.float64], k: int, p: float, min_p: float) -> tuple[float, float, int]:
    """Kept mass, cut logit and cut id from a sort."""
    order = np.lexsort((np.arange(row.size), -row))
    w = np.exp((row[order] - row[order[0]]) / TEMPERATURE)
    count = min(k or row.size, row.size)
    sums = np.cumsum(w)
    if p < 1:
        count = min(count, int(np.searchsorted(sums, p * sums[count - 1] - 1e-12)) + 1)
    if min_p:
        count = min(count, int((w >= min_p).sum()))
    kept = order[:count]
    last = row[kept].min()
    return float(sums[count - 1]), float(last), int(kept[row[kept] == last].max())


@pytest.mark.clause("FLT-1", "FLT-2", "FLT-3", "FLT-4", "FLT-6", "SMX-2")
@pytest.mark.parametrize("name", list(CASES))
def test_a_cut_is_where_a_sort_would_put_it(backend: Backend, device: str, name: str) -> None:
    """Mass, cut logit and cut id that ``sample`` records."""
    kind, spread, k, p, min_p = CASES[name]
    values = rows(kind, spread)
    sampling = Sampling.of(2, temperature=TEMPERATURE, top_k=k, top_p=p, min_p=min_p)
    integers = Uniforms(backend.asarray(np.array([1 << 62, 3 << 62], np.uint64), "uint64", device))
    drawn = backend.sample(backend.asarray(values, "float32", device), sampling, integers)
    stats: Any = drawn.proposal.stats
    for b in range(2):
        mass, cut_logit, cut_id = expected(values[b], k, p, min_p)
        got = [float(backend.to_numpy(v)[b, 0]) for v in (stats.mass, stats.cut_logit, stats.cut_id)]
        assert got[1:] == [cut_logit, cut_id]
        assert got[0] == pytest.approx(mass, rel=2e-6)
        token = int(backend.to_numpy(drawn.tokens)[b])
        assert (-values[b, token], token) <= (-cut_logit, cut_id)
