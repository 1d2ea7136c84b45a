"""The attention kernel over a ragged cache, in Triton's interpreter or on a GPU, against scaled dot products."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
if find_spec("triton") is None:
    pytest.skip("triton is not installed: pip install 'flashspec[gpu]' (Linux)", allow_module_level=True)

from flashspec.hf.graph.attention import Grid  # noqa: E402
from flashspec.hf.graph.kernels import attend, splits_for  # noqa: E402
from tests.triton.conftest import HAVE_GPU  # noqa: E402

DEVICE = "cuda" if HAVE_GPU else "cpu"
DTYPES = (torch.float32, torch.bfloat16) if HAVE_GPU else (torch.float32,)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize(
    ("batch", "width", "stored", "groups", "size", "capacity"),
    [(1, 5, 3, 3, 64, 300), (2, 1, 1, 2, 32, 200), (3, 9, 2, 4, 16, 170), (150, 2, 2, 1, 16, 130)],
)
def test_kernel_is_masked_attention(
    batch: int, width: int, stored: int, groups: int, size: int, capacity: int, window: int | None, dtype: Any
) -> None:
    """Unlike lengths, many and one share of the keys, junk behind each request's end."""
    if batch == 150 and not HAVE_GPU:
        batch = 1 if splits_for(2, 64) == 1 else 3
    torch.manual_seed(batch)
    heads = stored * groups
    query = torch.randn(1, heads, batch * width, size, device=DEVICE).to(dtype)
    keys, values = (torch.randn(batch + 1, stored, capacity, size, device=DEVICE).to(dtype) for _ in range(2))
    starts = torch.randint(0, capacity - width, (batch,), device=DEVICE)
    starts[0] = 0
    places = starts[:, None] + torch.arange(width, device=DEVICE)
    found = attend(query, keys, values, places, window or 0, 0.3)
    plan = Grid.of(places, (window,), capacity, groups, None)
    wanted = plan.attend(0, query, keys, values, 0.3)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found.float(), wanted.float(), atol=2e-2 if dtype is torch.bfloat16 else 2e-5, rtol=0)
