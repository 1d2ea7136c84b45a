"""The device's n-gram lookup drafts what the host's does."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")

from flashspec.contract import Sampling, Stream  # noqa: E402
from flashspec.drafts import NGram  # noqa: E402
from flashspec.hf.graph.lookup import lookup  # noqa: E402


@pytest.mark.parametrize(("longest", "shortest", "count"), [(3, 1, 4), (1, 1, 1), (5, 2, 9)])
def test_device_and_host_find_the_same_drafts(longest: int, shortest: int, count: int) -> None:
    """Texts of few letters, so that matches are many, at every length, junk behind the text."""
    made = np.random.default_rng(longest)
    rows, size = 300, 24
    tokens = made.integers(0, 3, (rows, size))
    length = made.integers(1, size + 1, rows)
    found = lookup(torch.tensor(tokens), torch.tensor(length), count, longest, shortest)
    drafter = NGram(longest=longest, shortest=shortest)
    for row, (text, n) in enumerate(zip(tokens, length, strict=True)):
        draft, _ = drafter.propose(text[:n], count, Sampling.of(1), Stream.of([0], [0]))
        wanted = draft.tokens or (-1,) * count
        assert tuple(found[row].tolist()) == wanted
