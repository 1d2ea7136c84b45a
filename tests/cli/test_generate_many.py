"""``flashspec generate`` with several prompts, grammars and metrics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

from flashspec.cli.many import decode_all  # needs the package asked for just above

if TYPE_CHECKING:
    from tests.cli.fake_engine import Engine, Run

TWO = ("generate", "Hi", "--prompt", "hello", "--max-new-tokens", "20", "--ignore-eos")


def test_lines_of_several_prompts_are_told_apart(run: Run, engine: Engine) -> None:
    """Whole lines behind the request's name; joined they are its text; together or at the end alike."""
    report = json.loads(run(*TWO, "--json").out)
    texts = {each["id"]: each["text"] for each in report["results"]}
    assert engine.batches == [(2, False)]
    for words in ((), ("--no-stream",)):
        lines = run(*TWO, *words).out.splitlines()
        for name, text in texts.items():
            own = [line.removeprefix(f"[{name}] ") for line in lines if line.startswith(f"[{name}] ")]
            assert "\n".join(own) == text.removesuffix("\n")
            assert len(own) > 1
        assert len(lines) == sum(len(text.splitlines()) for text in texts.values())


def test_text_that_comes_after_the_result_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What was held back for a stop string comes last, when the result is there already, even behind another's."""
    results = {0: SimpleNamespace(text="a b c\nd"), 1: SimpleNamespace(text="e")}
    chunks = [(0, "a b"), (1, "e"), (0, " c\nd")]

    class Batch:
        errors: ClassVar[dict[int, Exception]] = {}
        results: ClassVar[dict[int, Any]] = {}

        def submit(self, request: Any) -> int:
            return int(request)

        def __iter__(self) -> Iterator[tuple[int, Any]]:
            self.results.update(results)
            yield from ((key, SimpleNamespace(text=text)) for key, text in chunks)

    requests: Any = [0, 1]
    decode_all(Batch(), requests, ["x", "y"], "lines")
    assert capsys.readouterr().out == "[y] e\n[x] a b c\n[x] d\n"


def test_each_line_of_a_file_has_settings_of_its_own(run: Run, engine: Engine, tmp_path: Path) -> None:
    """What a line does not say is as on the command line; texts alone and blank lines are fine."""
    file = tmp_path / "requests.jsonl"
    lines = [
        {"prompt": "a", "id": "first", "temperature": 0.7, "seed": 9, "stop": ["x"], "logit_bias": {"7": -1.5}},
        {"prompt": "b", "max_new_tokens": 5, "top_p": 1, "allowed_ids": [98, 99], "bad_words": ["zz"], "chat": False},
        "c",
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    ran = run(
        "generate", "--requests", str(file), "--temperature", "1.3", "--max-new-tokens", "7", "--batch", "2",
        "--ignore-eos", "--json", "--compare", "--recalibrate",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert engine.batches == [(2, True), (2, True)]
    first, second, third = engine.requests[:3]
    assert (first.temperature, first.seed, first.stop, first.logit_bias) == (0.7, 9, ("x",), ((7, -1.5),))
    assert (second.temperature, second.max_new_tokens, second.allowed_ids) == (1.3, 5, frozenset({98, 99}))
    assert (third.temperature, third.max_new_tokens, third.allowed_ids) == (1.3, 7, None)
    assert engine.prompts == [("a", None), ("b", False), ("c", None)]
    report = json.loads(ran.out)
    assert [each["id"] for each in report["results"]] == ["first", "2", "3"]
    assert [len(each["token_ids"]) for each in report["results"][1:]] == [5, 7]
    assert set(report["results"][1]["token_ids"]) <= {98, 99}
    assert report["plain"]["same_tokens"] == [True, True, True]
    stats = report["stats"]
    assert stats["emitted"] == sum(each["stats"]["emitted"] for each in report["results"])
    assert stats["accepted"] == sum(stats["accepted_at"]) == sum(e["stats"]["accepted"] for e in report["results"])
    assert stats["speedup_estimate"] > 0
    assert sum(stats["finished"].values()) == 3
    for each in report["results"]:
        told = each["metrics"]["speculative_decoding"]
        assert sum(told["acceptance_histogram"]) == told["num_drafts"]
        assert each["error"] is None


def test_a_request_that_breaks_is_named_and_the_others_are_reported(run: Run, engine: Engine, tmp_path: Path) -> None:
    """Exit code 1, one line on standard error, partial text in the report."""
    file = tmp_path / "requests.jsonl"
    broken = {"prompt": "a", "allowed_ids": [5], "no_repeat_ngram": 1, "id": "bad"}
    file.write_text(json.dumps(broken) + '\n"b"\n', encoding="utf-8")
    ran = run("generate", "--requests", str(file), "--max-new-tokens", "6", "--ignore-eos", "--json")
    assert ran.code == 1
    assert ran.err.startswith("error: request bad: no token is left")
    bad, good = json.loads(ran.out)["results"]
    assert (len(bad["token_ids"]), len(good["token_ids"])) == (1, 6)
    assert "EMPTY_ROW" in bad["error"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1 is not JSON"),
        ("7", "a text, or an object"),
        ('{"prompt": ""}', "not empty"),
        ('{"prompt": "a", "topk": 3}', "'topk'; allowed: prompt, id, temperature"),
        ('{"prompt": "a", "top_k": 1.5}', "top_k is 1.5; allowed: int"),
        ('{"prompt": "a", "seed": true}', "seed is True; allowed: int"),
        ('{"prompt": "a", "stop": "x"}', "stop is 'x'; allowed: a list of texts"),
        ('{"prompt": "a", "allowed_ids": ["x"]}', "a list of ids"),
        ('{"prompt": "a", "temperature": -1}', "request 1: temperature is -1.0; allowed"),
        ('{"prompt": "a", "logprobs": 2}', "request 1: --logprobs goes into the report"),
        ('{"prompt": "a", "regex": "b", "grammar": "x"}', "request 1: --regex and --grammar are two grammars"),
        ('{"prompt": "a", "id": 2}\n{"prompt": "b"}', "two requests have the id 2"),
        ("", "holds no requests"),
    ],
)
def test_a_bad_line_is_named_before_a_model_is_loaded(
    run: Run, engine: Engine, tmp_path: Path, line: str, says: str
) -> None:
    """File and line, or the request; exit code 2."""
    file = tmp_path / "r.jsonl"
    file.write_text(line, encoding="utf-8")
    ran = run("generate", "--requests", str(file))
    assert (ran.code, ran.err.count("\n"), engine.loads) == (2, 1, [])
    assert says in ran.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Hi", "--prompt", "b", "--trace", "t.jsonl"), "--trace is about one prompt alone"),
        (("Hi", "--prompt", "b", "--selector-state", "s"), "--selector-state is about"),
        (("Hi", "--prompt", "b", "--live"), "--live is about"),
        (("Hi", "--prompt", "b", "--prompt-file", "x"), "--prompt-file is one prompt"),
        (("Hi", "--prompt", ""), "a prompt is empty"),
        (("Hi", "--batch", "2"), "--batch is about several prompts"),
        (("Hi", "--batch", "0"), "--batch is 0; allowed"),
        (("--requests", "no/file"), "the requests file no/file cannot be read"),
        (("Hi", "--grammar", "no/file"), "the grammar file no/file cannot be read"),
        (("Hi", "--json-schema", "no/file"), "the schema file no/file cannot be read"),
        (("Hi", "--regex", "a", "--ignore-eos"), "by which a grammar ends"),
        (("Hi", "--allowed-ids", "x"), "'x' is not an integer"),
    ],
)
def test_contradictions_are_one_line(run: Run, engine: Engine, words: tuple[str, ...], says: str) -> None:
    """Before a model is loaded."""
    ran = run("generate", *words)
    assert (ran.code, ran.err.count("\n"), engine.loads) == (2, 1, [])
    assert says in ran.err


def test_a_grammar_reaches_the_request(run: Run, engine: Engine, tmp_path: Path) -> None:
    """By text or by file, for one prompt and in a line of several."""
    pytest.importorskip("llguidance", reason="the grammar extra is not installed")
    schema, lark = tmp_path / "s.json", tmp_path / "g.lark"
    schema.write_text('{"type": "null"}', encoding="utf-8")
    lark.write_text('start: "b"', encoding="utf-8")
    for words in (
        ("--regex", "b+"), ("--json-schema", ' {"type": "boolean"}'), ("--json-schema", str(schema)),
        ("--grammar", str(lark)),
    ):  # fmt: skip
        assert run("generate", "Hi", *words).code == 0
        assert engine.requests[-1].grammar is not None
    assert engine.grammars == [
        {"regex": "b+"}, {"json_schema": ' {"type": "boolean"}'}, {"json_schema": '{"type": "null"}'},
        {"lark": 'start: "b"'},
    ]  # fmt: skip
    lines = tmp_path / "r.jsonl"
    lines.write_text('{"prompt": "a", "regex": "b"}\n{"prompt": "c", "json_schema": {"type": "null"}}', "utf-8")
    report = json.loads(run("generate", "--requests", str(lines), "--json", "--temperature", "0.7").out)
    assert [each["token_ids"] for each in report["results"]] == [[98, 2], [98, 2]]
    assert engine.grammars[-1] == {"json_schema": '{"type": "null"}'}


def test_without_the_packages_one_line_says_what_to_install(
    run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grammars and metrics are extras."""
    monkeypatch.setitem(sys.modules, "llguidance", None)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ran = run("generate", "Hi", "--regex", "a")
    assert (ran.code, engine.loads) == (1, [])
    assert "install FlashSpec with its grammar extra" in ran.err
    ran = run("generate", "Hi", "--metrics", "m.prom")
    assert (ran.code, engine.loads) == (1, [])
    assert "install FlashSpec with its metrics extra" in ran.err


def test_metrics_are_written_for_one_prompt_and_for_several(run: Run, tmp_path: Path) -> None:
    """Prometheus text under the names that dashboards know."""
    pytest.importorskip("prometheus_client", reason="the metrics extra is not installed")
    file = tmp_path / "m.prom"
    assert run("generate", "Hi", "--metrics", str(file)).code == 0
    text = file.read_text(encoding="utf-8")
    assert 'flashspec:spec_decode_num_accepted_tokens_total{engine="0",model_name="smollm2-135m"} 2.0' in text
    assert run(*TWO, "--metrics", str(file)).code == 0
    assert 'flashspec:generation_tokens_total{engine="0",model_name="smollm2-135m"} 40.0' in file.read_text("utf-8")
