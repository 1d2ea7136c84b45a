"""Tensor-parallel decoding over gloo: two processes decode as one does, and a failure of one ends both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch
from torch import nn

from flashspec.contract import OneHot, Padded, Sampling, Stream
from flashspec.errors import CapabilityError
from flashspec.hf.ranks import Team, Told
from flashspec.hf.split import plan_of, split
from flashspec_torch import backend

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
import torch
from flashspec.hf import Speculator, load
from flashspec.hf.loading import encode_prompt
from flashspec.hf.ranks import agree, alike, launched, team
from flashspec.hf.split import split
import attrs

torch.set_num_threads(1)


def decode(own):
    loaded = load("smollm2-135m", dtype="float32", device="cpu")
    if own:
        split(loaded.model, own)
    speculator = Speculator.build(loaded, ["ngram"], selector="fixed:ngram/4", backend="torch")
    if own:
        with torch.no_grad():
            same = alike(loaded.model(torch.tensor([[1, 2, 3]])).logits[0], own)
        told = {"yes": same, "no": False}[sys.argv[1]]
        speculator = attrs.evolve(speculator, engine=agree(speculator.engine, own, told))
        assert same
    ids = encode_prompt(loaded, "Write 1 2 3 4 5 6 1 2 3 4 5 6 again:")
    found = speculator.generate(speculator.default_request(ids, max_new_tokens=32))
    return [list(found.token_ids), found.stats.steps, found.stats.drafted, found.stats.accepted]


if launched():
    with team("cpu") as own:
        print(json.dumps(decode(own)), flush=True)
else:
    print(json.dumps(decode(None)))
"""
BROKEN = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
from flashspec.hf.ranks import team

def fail():
    raise ValueError("the disk is full")

with team("cpu", timedelta(seconds=20)) as own:
    if own.rank == int(sys.argv[1]):
        own.first(fail)
    own.first(lambda: 3)
    own.gather(torch.zeros(3))
"""


def _launch(program: str, argument: str, path: Path, ranks: int) -> tuple[list[int], list[str], list[str]]:
    """Exit status, output and errors of every process; each gets what torchrun would give it."""
    file = path / "program.py"
    file.write_text(program, encoding="utf-8")
    roots = os.pathsep.join(str(ROOT / part) for part in (".", "spec", "backends", "conformance"))
    base = {**os.environ, "PYTHONPATH": roots, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        base |= {"MASTER_PORT": str(probe.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    words = [sys.executable, str(file), argument]
    started = [
        subprocess.Popen(
            words, env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    told = [process.communicate(timeout=600) for process in started]
    return [p.returncode for p in started], [out for out, _ in told], [err for _, err in told]


@pytest.mark.nightly
@pytest.mark.parametrize("bitwise", ["yes", "no"])
def test_two_processes_decode_smollm2_as_one_does(bitwise: str, tmp_path: Path) -> None:
    """Greedy float32, nine heads split six and three: the same tokens and counts, agreed by bits or by broadcast."""
    codes, alone, _ = _launch(PROGRAM, bitwise, tmp_path, 1)
    both, told, errors = _launch(PROGRAM, bitwise, tmp_path, 2)
    assert (codes, both) == ([0], [0, 0]), errors
    assert [json.loads(each) for each in told] == [json.loads(alone[0])] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("bench", ["synthetic --shape tiny --compile no --steps 5 --prompt-len 16", "decode --limit 1"])
def test_benches_run_on_ranks(bench: str, tmp_path: Path) -> None:
    """Under torchrun rank 0 reports, with the number of ranks, and the others say nothing."""
    options = {"synthetic": "", "decode": "--systems plain --kinds code --max-new-tokens 4 --threads 1"}
    words = f"{bench} {options[bench.split()[0]]} --repeats 1 --device cpu --dtype float32 --backend torch --json"
    program = f"import sys\nfrom flashspec.bench.__main__ import main\nsys.exit(main({words.split()!r}))\n"
    codes, told, errors = _launch(program, "", tmp_path, 2)
    assert codes == [0, 0], "\n".join(errors)
    assert told[1] == ""
    assert {row["ranks"] for row in json.loads(told[0])["rows"]} == {2}


@pytest.mark.parametrize("culprit", ["0", "1"])
def test_a_rank_that_fails_ends_the_run_with_its_reason(culprit: str, tmp_path: Path) -> None:
    """Both processes end, long before the timeout, and both say which rank failed and why."""
    begin = time.monotonic()
    codes, _, errors = _launch(BROKEN, culprit, tmp_path, 2)
    assert codes == [1, 1]
    assert all(f"RankFailed: rank {culprit} failed: ValueError: the disk is full" in each for each in errors), errors
    assert time.monotonic() - begin < 120


class Block(nn.Module):
    """A layer as transformers names its parts."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.self_attn = nn.ModuleDict({"q_proj": nn.Linear(8, width), "o_proj": nn.Linear(width, 8)})
        self.mlp = nn.ModuleDict({"up_proj": nn.Linear(8, 10)})


class Model(nn.Module):
    """A model with a plan of its own."""

    base_model_prefix = "model"
    _tp_plan = {"lm_head": "colwise_gather_output"}  # noqa: RUF012  # as transformers writes it

    def __init__(self, plan: Any, heads: int = 3) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"layers": nn.ModuleList([Block()])})
        self.lm_head = nn.Linear(8, 7, bias=False)
        config = SimpleNamespace(base_model_tp_plan=plan, num_key_value_heads=heads)
        config.get_text_config = lambda: config
        self.config = config


PLAN = {
    "layers.*.self_attn.q_proj": "colwise",
    "layers.*.self_attn.o_proj": "rowwise",
    "layers.*.mlp.up_proj": "colwise",
}


def test_heads_are_split_between_those_that_share_keys() -> None:
    """Three key heads over two ranks: two and one, on both sides of the attention; the rest evenly."""
    shapes = []
    for rank in range(2):
        model = split(Model(PLAN), Team(rank, 2, "cpu", None))
        block = model.model["layers"][0]
        q, o, up = block.self_attn["q_proj"], block.self_attn["o_proj"], block.mlp["up_proj"]
        shapes.append([tuple(m.weight.shape) for m in (q, o, up, model.lm_head)])
        assert (o.bias is None) == (rank == 1)
    assert shapes == [[(8, 8), (8, 8), (5, 8), (4, 8)], [(4, 8), (8, 4), (5, 8), (3, 8)]]


@attrs.define(eq=False)
class Line:
    """Stands in for a team: keeps what is told, or tells something else."""

    told: torch.Tensor | None = None

    def agreed(self, values: torch.Tensor) -> torch.Tensor:
        """What rank 0 tells, of the same form."""
        if self.told is None:
            self.told = values
        assert (values.shape, values.dtype) == (self.told.shape, self.told.dtype)
        return self.told


def test_a_verdict_that_is_told_arrives_whole() -> None:
    """Tokens, counts, status and log-probabilities are rank 0's, bit by bit, whatever this rank finds."""
    torch.manual_seed(3)
    drafts, line = torch.tensor([[1, 2], [3, 4]]), Line()
    rest = (OneHot(), Padded(), Sampling.of(2, temperature=0.7), Stream.of([1, 2], [3, 4]))
    rows = torch.randn(2, 3, 9)
    told = Told(backend, line)  # type: ignore[arg-type]  # a stand-in
    theirs, mine = told.verify(rows, drafts, *rest), told.verify(torch.randn(2, 3, 9), drafts, *rest)
    alone = backend.verify(rows, drafts, *rest)
    for field in ("tokens", "num_accepted", "num_emitted", "status", "logprobs"):
        assert torch.equal(getattr(mine, field), getattr(alone, field))
        assert torch.equal(getattr(theirs, field), getattr(alone, field))


def test_a_model_that_cannot_be_split_is_refused() -> None:
    """No plan, an unknown style, more ranks than key heads."""
    two = Team(0, 2, "cpu", None)
    with pytest.raises(CapabilityError, match="one rank a key head"):
        split(Model(PLAN, heads=1), two)
    with pytest.raises(CapabilityError, match="'packed'"):
        split(Model({**PLAN, "layers.*.mlp.up_proj": "packed"}), two)
    empty = Model(None)
    type(empty)._tp_plan, kept = {}, type(empty)._tp_plan
    try:
        with pytest.raises(CapabilityError, match="has no tp_plan"):
            plan_of(empty)
    finally:
        type(empty)._tp_plan = kept
    assert torch.is_tensor(empty.lm_head.weight)
