"""Rows in waves, and verdicts in every program: other launches, the same bits, and no row read that is not needed."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec.contract import Backend, Verdict
from tests.backends.calls import Call, judge, random_call

WAVES = (1, 3)
"""Ends of the waves before the last."""


def plain(call: Call) -> Call:
    """The call without filters and with finite rows."""
    off = {"top_k": np.zeros(len(call.counts), np.int64), "top_p": np.ones(len(call.counts))}
    own = attrs.evolve(call.sampling, **off, min_p=np.zeros(len(call.counts)), allowed=None)
    return attrs.evolve(call, sampling=own, rows=np.where(np.isfinite(call.rows), call.rows, -3.0))


def bits(backend: Backend, found: Verdict) -> list[bytes]:
    """All arrays of a verdict."""
    arrays = (found.tokens, found.num_accepted, found.num_emitted, found.status, found.logprobs)
    return [backend.to_numpy(v).tobytes() for v in arrays]


def in_waves(patch: pytest.MonkeyPatch) -> None:
    """Read rows in waves whatever the size of the call."""
    from flashspec_triton import _launch

    patch.setattr(_launch, "waves", lambda b, width, t: (*(e for e in WAVES if e < width), width))


def spread(patch: pytest.MonkeyPatch, most: int) -> None:
    """Let every program come to the verdict up to ``most`` programs."""
    from flashspec_triton import _launch

    patch.setattr(_launch, "MOST_SPREAD", most)


@pytest.mark.clause("PUR-2", "ACC-3", "PTH-1", "GRD-1")
@pytest.mark.parametrize("method", ["token", "path"])
@pytest.mark.parametrize("seed", [3, 8])
def test_rows_in_waves_give_the_same_bits(
    backend: Backend, device: str, method: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ragged calls with all kinds of proposal, of which some requests end in each wave."""
    call = plain(random_call(seed, 6, 5, 33))
    at_once = judge(backend, call, "float32", device, method=method)
    in_waves(monkeypatch)
    assert bits(backend, judge(backend, call, "float32", device, method=method)) == bits(backend, at_once)
    stops = np.clip(backend.to_numpy(at_once.num_accepted), 0, 3)
    assert len(set(stops.tolist())) > 1


@pytest.mark.clause("STS-1", "STS-2")
@pytest.mark.parametrize("method", ["token", "path"])
def test_rows_after_a_rejection_do_not_matter(
    backend: Backend, device: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN in every row after the last that was needed changes nothing, with waves or without."""
    call = plain(random_call(21, 6, 5, 33))
    clean = judge(backend, call, "float32", device, method=method)
    accepted = backend.to_numpy(clean.num_accepted)
    rows = call.rows.copy()
    for b, count in enumerate(call.counts):
        rows[call.first[b] + int(accepted[b]) + 1 : call.first[b] + count] = np.nan
    assert np.isnan(rows).any()
    spoilt = attrs.evolve(call, rows=rows)
    in_waves(monkeypatch)
    assert bits(backend, judge(backend, spoilt, "float32", device, method=method)) == bits(backend, clean)


@pytest.mark.clause("RES-1", "PUR-2")
@pytest.mark.parametrize(("seed", "vocab"), [(5, 33), (6, 1100)])
def test_a_verdict_in_every_program_gives_the_same_bits(
    backend: Backend, device: str, seed: int, vocab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense drafts with one launch for verdict and residual, and with two."""
    call = plain(random_call(seed, 5, 2, vocab))
    spread(monkeypatch, 0)
    apart = judge(backend, call, "bfloat16", device)
    spread(monkeypatch, 1 << 20)
    assert bits(backend, judge(backend, call, "bfloat16", device)) == bits(backend, apart)


def test_the_table_of_waves_covers_every_row() -> None:
    """Ends rise to the width; small calls and short chains have one wave."""
    from flashspec_triton._plan import LAZY_TILES, waves

    for width in range(1, 20):
        ends = waves(LAZY_TILES, width, 8)
        assert ends[-1] == width
        assert list(ends) == sorted(set(ends))
        assert waves(1, width, 8) == (width,)
    assert waves(256, 9, 128) == (4, 9)
