"""``bench verify``: shapes, floors, and one small run on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.bench import __main__ as command
from flashspec.bench import clock, verify
from flashspec.bench.verify_calls import Case, call
from flashspec.errors import ContractError
from flashspec.registry import get_backend

KEYS = (
    "backend", "method", "proposal", "batch", "draft_len", "vocab", "dtype", "filters", "warm", "median_us", "p10_us",
    "p90_us", "floor_us", "fraction_of_floor",
)  # fmt: skip


def _config(*argv: str) -> verify.Config:
    return command.configure_verify(command.parser().parse_args(["verify", *argv]), ["verify", *argv])


def test_every_option_reaches_the_configuration() -> None:
    """Without options the defaults; each flag at another value changes its field, and no field is left."""
    assert attrs.evolve(_config(), command="x") == verify.Config(command="x")
    argv = (
        "--backends numpy --methods greedy sample --proposals sparse --batches 3 --draft-lens 2 --vocabs 70 "
        "--dtypes float32 --filters top_k=3 --warmth cold --temperature 0.7 --repeats 3 --device cpu"
    )
    config = _config(*argv.split())
    assert [name for name, default, _ in verify.options() if getattr(config, name) == default] == []
    assert config.command == f"flashspec bench verify {argv}"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"methods": ("tree",)}, "methods has 'tree'; allowed: token, block, path, greedy, sample"),
        ({"proposals": ("tree",)}, "proposals has 'tree'"),
        ({"batches": (0,)}, "batches is"),
        ({"vocabs": ()}, "vocabs is"),
        ({"repeats": 0}, "repeats is 0"),
        ({"device": "tpu"}, "device is 'tpu'; allowed: cuda, cpu"),
    ],
)
def test_a_configuration_that_no_run_could_use_is_refused(given: dict[str, Any], says: str) -> None:
    """The message names the option and what is allowed."""
    with pytest.raises(ContractError, match=says):
        verify.Config(**given)


def test_the_floor_counts_each_row_once() -> None:
    """Five target rows for four drafts, one draft row more if q is dense, one row for a plain draw."""
    case = Case("token", "onehot", 3, 4, 1000, "bfloat16", "none")
    assert case.bytes == 3 * 5 * 1000 * 2
    assert attrs.evolve(case, proposal="dense").bytes == 3 * 6 * 1000 * 2
    assert attrs.evolve(case, method="block", proposal="dense").bytes == 3 * 6 * 1000 * 2
    assert attrs.evolve(case, method="path", proposal="dense").bytes == case.bytes
    assert attrs.evolve(case, method="sample", draft_len=0, dtype="float32").bytes == 3 * 1000 * 4


def test_cold_sets_outgrow_the_cache() -> None:
    """Enough sets that all others together are larger than the cache; one where a row is warm or on a CPU."""
    case = Case("token", "onehot", 8, 4, 128_256, "bfloat16", "none")
    count = verify.sets_of(case, False, "cuda")
    assert (count - 1) * case.bytes >= verify.CACHE_BYTES
    assert verify.sets_of(case, True, "cuda") == verify.sets_of(case, False, "cpu") == 1


@pytest.mark.parametrize("method", ["token", "block"])
@pytest.mark.parametrize("proposal", ["onehot", "sparse", "dense"])
def test_the_drafts_are_really_drawn_from_their_proposal(method: str, proposal: str) -> None:
    """No draft is judged as anything else: every status is OK, and tokens are in the vocabulary."""
    backend = get_backend("numpy")
    verdict = call(Case(method, proposal, 3, 2, 300, "float32", "top_k=40,top_p=0.9"), backend, 0.7, "cpu", 1)()
    assert verdict.status.tolist() == [0, 0, 0]
    assert bool(np.all(verdict.tokens < 300))


def test_quantiles_are_of_the_samples() -> None:
    """Median, tenth and ninetieth percentile in microseconds."""
    timing = clock.Timing.of("eager", list(range(1, 12)))
    assert (timing.p10_us, timing.median_us, timing.p90_us) == (2.0, 6.0, 10.0)


def test_a_run_writes_every_key(tmp_path: Path) -> None:
    """A small run on the CPU: a row for each method with the documented keys, and a header."""
    file = tmp_path / "report.json"
    argv = (
        "verify --backends numpy --device cpu --methods token block path greedy sample --proposals onehot dense "
        "--batches 1 --draft-lens 1 --vocabs 65 --dtypes float32 --warmth warm --repeats 2 --json"
    )
    assert command.main([*argv.split(), str(file)]) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert {"command", "date", "hardware", "versions", "read_bytes_per_second"} <= set(report["header"])
    assert [(r["method"], r["proposal"]) for r in report["rows"]] == [
        ("token", "onehot"), ("token", "dense"), ("block", "onehot"), ("block", "dense"), ("path", "onehot"),
        ("greedy", "onehot"), ("sample", "onehot"),
    ]  # fmt: skip
    assert all(set(KEYS) <= set(r) and r["fraction_of_floor"] > 0 for r in report["rows"])
