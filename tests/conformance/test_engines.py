"""The probes that engines are asked see the faults that they are for, and pass what is right."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashspec.errors import BackendUnavailable
from flashspec_conformance.__main__ import main
from flashspec_conformance.engines import restated, vllm_v2
from flashspec_conformance.engines.known import ENGINES
from flashspec_conformance.engines.rounds import play
from flashspec_conformance.engines.rows import PROMISES, from_wheel
from flashspec_conformance.engines.tails import exact, tails
from flashspec_conformance.functions import trouble
from flashspec_conformance.functions.judge import judge
from flashspec_conformance.functions.laws import chained, single

DRAWS = 60_000


@pytest.mark.parametrize(
    ("rules", "right"),
    [
        (vllm_v2.Rules(), True),
        (vllm_v2.Rules(block=True, steps=True), True),
        (vllm_v2.Rules(block=True), False),
        (vllm_v2.Rules(salt=0), False),
    ],
    ids=["token", "block, steps mixed in", "block, position alone", "token, shared noise"],
)
def test_the_law_over_rounds_tells_shared_noise_and_coins_used_twice(rules: vllm_v2.Rules, right: bool) -> None:
    """Block coins keyed by the position alone, and drafts with the noise of the residual, fail; the others pass."""
    assert play(rules, chained(0.7, 1.3), DRAWS).passed is right


def test_top_p_is_compared_with_the_smallest_prefix() -> None:
    """Right: exact, and another choice among tied tokens; wrong: a tenth more tokens, or p applied to the tail."""

    def last_ties(logits: Any, p: float) -> Any:
        return exact(logits[::-1].astype(np.float64), p)[::-1]

    def wider(logits: Any, p: float) -> Any:
        kept = exact(logits.astype(np.float64), min(0.999, p * 1.1)) > 0
        law = np.exp(logits.astype(np.float64))
        return np.where(kept, law, 0)

    assert tails(lambda logits, p: exact(logits.astype(np.float64), p)).verdict == "pass"
    assert tails(last_ties).verdict == "pass"
    found = tails(wider)
    assert found.verdict == "fail"
    assert "tokens kept" in found.why


@pytest.mark.parametrize("name", ["flashinfer", "sglang token", "sglang block"])
def test_restated_rules_have_the_law_and_the_faults_of_their_kernels(name: str) -> None:
    """Extracted laws are exact; where no residual is left, a token outside the law comes out."""
    function = restated.flashinfer() if name == "flashinfer" else restated.sglang(name.endswith("block"))
    judged = judge(function, 2000, [single()])
    assert judged.verdict("law") == "pass"
    assert judged.probes[0].method == "extracted"
    assert judged.probes[0].tv < 1e-5
    assert "emits token 3, whose probability is 0" in trouble.empty_residual(function) or name == "flashinfer"
    assert judged.verdict("empty_residual") == "fail"


def test_restated_v1_has_the_law_by_count() -> None:
    """Sampled and one-hot drafts."""
    assert judge(restated.vllm_v1(), 2000, [single()]).verdict("law") == "pass"


def test_the_command_writes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a verifier, five verdicts each; a fault ends with status 1; names and draws are checked."""
    report, table = tmp_path / "r.json", tmp_path / "t.md"
    assert main(["engine", "flashinfer", "--draws", "2000", "--json", str(report), "--markdown", str(table)]) == 1
    value = json.loads(report.read_text(encoding="utf-8"))
    assert value["complete"]
    assert [f["promise"] for f in value["rows"][0]["findings"]] == list(PROMISES)
    assert "**fail**" in table.read_text(encoding="utf-8").splitlines()[2]
    assert "restated" in capsys.readouterr().out
    assert main(["engine", "tgi"]) == 2
    assert "flashinfer, sglang, transformers, vllm-v1, vllm-v2" in capsys.readouterr().err
    assert main(["engine", "sglang", "--draws", "10"]) == 2


def test_an_engine_that_is_not_there_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where its rule is not restated: status 2 and what to install."""
    monkeypatch.setitem(sys.modules, "transformers.generation.logits_process", None)
    assert main(["engine", "transformers", "--draws", "2000"]) == 2
    told = capsys.readouterr().err
    assert "engine transformers cannot be asked" in told
    assert told.count("\n") == 1


def test_names_and_wheels_are_what_they_say() -> None:
    """The command's list is that of the engines; a file that is not there is told."""
    from flashspec_conformance.engines.command import NAMES

    assert tuple(sorted(ENGINES)) == NAMES
    with pytest.raises(BackendUnavailable, match="no-such-wheel is not installed"):
        from_wheel("no-such-wheel", "x.py")
    with pytest.raises(BackendUnavailable, match=r"numpy has no file numpy/x\.py"):
        from_wheel("numpy", "numpy/x.py")
    told, nan = vllm_v2.agreement()
    assert "its kernels were not run" in told
    assert nan == "a restatement says nothing of NaN"
