"""``bench synthetic``: its coins, its refusals, and a whole run of the tiny shape on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flashspec.bench import __main__ as command
from flashspec.bench.synthetic import LABEL, Config
from flashspec.errors import ContractError

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shape": "huge"}, "shape is 'huge'; allowed: smollm2-135m"),
        ({"acceptance": 1.5}, "acceptance is 1.5"),
        ({"batches": (1, 0)}, "batches is 0"),
        ({"compile": "maybe"}, "compile is 'maybe'"),
    ],
)
def test_values_that_no_run_could_use_are_refused(given: dict[str, Any], says: str) -> None:
    """Before any weights are made."""
    with pytest.raises(ContractError, match=says):
        Config(**given)


def test_coins_alone_decide_what_is_accepted() -> None:
    """The leading coins below the probability; drafts that are not there count as token 0."""
    from flashspec.bench.synthetic_run import force

    drafts, tokens = torch.tensor([[5, -1, 7], [5, 6, 7]]), torch.tensor([[9, -1, -1, -1], [8, -1, -1, -1]])
    coins = torch.tensor([[0.1, 0.7, 0.8], [0.9, 0.1, 0.1]])
    found, accepted = force(tokens, drafts, coins, 0.75)
    assert accepted.tolist() == [2, 0]
    assert found.tolist() == [[5, 0, 9, -1], [8, -1, -1, -1]]


def test_a_run_reports_what_it_is(tmp_path: Path) -> None:
    """Batches of one and three on a CPU: labelled as not exact, about as many tokens a step as the coins ask for."""
    file = tmp_path / "report.json"
    words = (
        "synthetic --shape tiny --device cpu --dtype float32 --backend torch --compile no --steps 30 --repeats 1 "
        f"--prompt-len 16 --batches 1 3 --json {file}"
    )
    assert command.main(words.split()) == 0
    report = json.loads(file.read_text())
    assert report["header"]["label"] == LABEL
    assert "not exact" in LABEL
    assert [row["batch"] for row in report["rows"]] == [1, 3]
    assert all(row["system"] == LABEL and not row["captured"] for row in report["rows"])
    assert 2.4 < report["rows"][1]["tokens_per_step"] < 3.7
