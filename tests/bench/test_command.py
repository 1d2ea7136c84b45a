"""The command: options, refusals before any work, and what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from flashspec.bench import __main__ as command
from flashspec.bench import decode, table
from flashspec.errors import ContractError, ModelError
from flashspec.options import options

ROOT = Path(__file__).resolve().parents[2]
REPORT: dict[str, Any] = {"header": {"command": "c"}, "rows": [{"kind": "code"}]}


def _configure(*argv: str) -> decode.Config:
    return command.configure(decode.Config, command.parser().parse_args(["decode", *argv]), ["decode", *argv])


def test_without_options_the_configuration_is_the_default() -> None:
    """The parser repeats no default of its own."""
    assert attrs.evolve(_configure(), command="x") == decode.Config(command="x")


def test_every_option_reaches_the_configuration() -> None:
    """Each flag at a value that is not its default changes its field, and no field is left."""
    argv = (
        "--target t --draft ngram --draft early-exit:4 --draft-max 5 --selector ucb1 --backend numpy "
        "--systems plain speculation --kinds code chat --limit 2 --prompts p.jsonl --max-new-tokens 33 "
        "--batch 1 4 --queue 3 --recalibrate "
        "--temperature 0.7 --eos stop --repeats 3 --seed 9 --dtype float32 --device cpu --threads 2"
    )
    config = _configure(*argv.split())
    expected = decode.Config(
        target="t", draft=("ngram", "early-exit:4"), draft_max=5, selector=("ucb1",), backend="numpy",
        systems=("plain", "speculation"), kinds=("code", "chat"), limit=2, prompts="p.jsonl", max_new_tokens=33,
        temperature=0.7, eos="stop", repeats=3, seed=9, dtype="float32", device="cpu", threads=2,
        batch=(1, 4), queue=3, recalibrate=True, command=f"flashspec bench decode {argv}",
    )  # fmt: skip
    assert config == expected
    unchanged = [o.name for o in options(decode.Config) if getattr(config, o.name) == o.default]
    assert unchanged == ["stream"]  # of one request at a time
    assert _configure("--stream", "yes", "--selector", "cht", "ucb1").selector == ("cht", "ucb1")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"systems": ("speculation",)}, "with plain among them"),
        ({"systems": ("plain", "plain")}, "each once"),
        ({"systems": ("plain", "magic")}, "system is 'magic'; allowed: plain, speculation"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"repeats": 0}, "repeats is 0"),
        ({"stream": "on"}, "stream is 'on'; allowed: yes, no"),
        ({"selector": ("cht", "cht")}, "each once"),
        ({"batch": (1, 4), "stream": "yes"}, "leave batch at 1"),
        ({"batch": (4,), "selector": ("cht", "ucb1")}, "leave batch at 1"),
        ({"queue": 0}, "queue is 0"),
        ({"batch": (4, 0)}, "batch is .4, 0.; allowed"),
        ({"batch": (4, 4)}, "each once"),
        ({"batch": (4,), "systems": ("plain",)}, "compares plain with speculation"),
        ({"limit": 0}, "limit is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"draft_max": 0}, "draft_max is 0"),
        ({"temperature": -0.5}, "temperature is -0.5"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": float("inf")}, "temperature is inf"),
        ({"eos": "never"}, "eos is 'never'; allowed: ignore, mask, stop"),
        ({"draft": ()}, "no draft was named"),
    ],
)
def test_a_useless_value_is_refused(given: dict[str, Any], says: str) -> None:
    """Before any model is loaded."""
    with pytest.raises(ContractError, match=says):
        decode.Config(**given)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--kinds", "poem"], "'poem'; kinds in this set"),
        (["--prompts", "absent.jsonl"], "absent.jsonl cannot be read"),
        (["--target", "no-such-model"], "no-such-model"),
        (["--json", "no-such-folder/x.json"], "no-such-folder/x.json cannot be written"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing on standard output, one line on standard error."""
    assert command.main(["decode", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (ModelError("no weights"), 1, "no weights"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError("full"), 1, "full"),
    ],
)
def test_failures_have_their_exit_codes(
    raised: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 for a failure, 130 for Ctrl-C, one line each."""

    def fail(config: decode.Config, progress: decode.Progress) -> dict[str, Any]:
        raise raised

    monkeypatch.setattr(decode, "run", fail)
    assert command.main(["decode"]) == code
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_json_goes_to_standard_output_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program can read what ``--json`` prints."""
    monkeypatch.setattr(decode, "run", lambda config, progress: REPORT)
    assert command.main(["decode", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_json_with_a_file_writes_it_and_shows_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person sees the table; the file has the report."""
    monkeypatch.setattr(decode, "run", lambda config, progress: REPORT)
    monkeypatch.setattr(table, "show", lambda report: print("the table"))
    file = tmp_path / "report.json"
    assert command.main(["decode", "--json", str(file)]) == 0
    assert json.loads(file.read_text(encoding="utf-8")) == REPORT
    assert capsys.readouterr().out == "the table\n"


def test_help_needs_neither_torch_nor_the_command_lines_packages() -> None:
    """The parser works where only the core's dependencies are installed."""
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'rich', 'cyclopts'): sys.modules[name] = None\n"
        "from flashspec.bench.__main__ import main\n"
        "main(['decode', '--help'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert "--max-new-tokens" in done.stdout
