"""``flashspec generate``: options reach the engine, text and reports come out, errors are one line."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flashspec.drafts.shipped import default_drafts
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError, FlashSpecError, ModelError, UnknownName

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

if TYPE_CHECKING:
    from tests.cli.fake_engine import Engine, Run

TEXT = "Hello wörld!\nBye"


def test_text_alone_goes_to_standard_output(run: Run) -> None:
    """Away from a terminal there is the text, one newline at its end, and nothing else."""
    ran = run("generate", "Hi")
    assert (ran.code, ran.out, ran.err) == (0, f"{TEXT}\n", "")


def test_no_stream_gives_the_same_text(run: Run) -> None:
    """The text is the same when it comes all at once."""
    assert run("generate", "Hi", "--no-stream").out == f"{TEXT}\n"


def test_text_that_ends_with_a_newline_gets_no_second_one(run: Run, engine: Engine) -> None:
    """One line end is enough."""
    engine.texts = ("a\n",)
    assert run("generate", "Hi").out == "a\n"
    assert run("generate", "Hi", "--no-stream").out == "a\n"


def test_streamed_text_is_written_step_by_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is flushed before the next step; without streaming nothing is until the end."""
    written: list[str] = []
    monkeypatch.setattr(sys, "stdout", _Recorder(written))
    run("generate", "Hi")
    assert [piece for piece in written if piece] == ["Hello", " wörld", "!\n", "Bye", "\n"]
    written.clear()
    run("generate", "Hi", "--no-stream")
    assert [piece for piece in written if piece] == [TEXT, "\n"]


class _Recorder:
    """A standard output that remembers each write."""

    def __init__(self, written: list[str]) -> None:
        self._written = written

    def write(self, text: str) -> int:
        self._written.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """No terminal."""
        return False


def test_every_option_reaches_the_engine(run: Run, engine: Engine) -> None:
    """No option is without effect: each is seen by the loader, the builder or the request."""
    ran = run(
        "generate", "Hi", "--target", "some/model", "--draft", "ngram:4", "--draft", "model:some/small",
        "--draft-max", "5", "--selector", "ucb1", "--backend", "numpy", "--temperature", "0.7", "--top-k", "40",
        "--top-p", "0.9", "--min-p", "0.05", "--seed", "18446744073709551615", "--max-new-tokens", "33",
        "--min-new-tokens", "3", "--stop", "END", "--stop", "\n\n", "--no-chat", "--dtype", "float32",
        "--device", "cpu", "--threads", "2", "--recalibrate", "--method", "block",
        "--shadow", "5", "--no-warm-start", "--no-refresh",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    name, options = engine.loads[0]
    del options["progress"]
    assert (name, options) == ("some/model", {"dtype": "float32", "device": "cpu", "threads": 2})
    assert engine.prompts == [("Hi", False)]
    drafts, built = engine.builds[0]
    assert drafts == ("ngram:4", "model:some/small")
    assert built == {
        "draft_max": 5, "selector": "ucb1", "backend": "numpy", "recalibrate": True, "method": "block",
        "shadow": 5, "warm_start": False, "refresh": False,
    }  # fmt: skip
    request = engine.requests[0]
    assert (request.temperature, request.top_k, request.top_p, request.min_p) == (0.7, 40, 0.9, 0.05)
    assert (request.seed, request.max_new_tokens, request.min_new_tokens) == (2**64 - 1, 33, 3)
    assert request.stop == ("END", "\n\n")
    assert request.eos_ids == {2}


def test_options_about_logits_reach_the_request(run: Run, engine: Engine) -> None:
    """Penalties, biases, bad words and the end of text."""
    ran = run(
        "generate", "Hi", "--repetition-penalty", "1.2", "--presence-penalty", "0.5", "--frequency-penalty", "-0.25",
        "--no-repeat-ngram", "3", "--logit-bias", "7=-2.5", "--logit-bias", "9=-inf", "--bad-words", "ab",
        "--bad-words", "c", "--ignore-eos", "--json", "--logprobs", "2", "--logprobs-of", "processed",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    request = engine.requests[0]
    assert (request.repetition_penalty, request.presence_penalty, request.frequency_penalty) == (1.2, 0.5, -0.25)
    assert (request.no_repeat_ngram, request.logit_bias) == (3, ((7, -2.5), (9, float("-inf"))))
    assert request.bad_words == ((97, 98), (99,))
    assert request.eos_ids == frozenset()
    assert (request.logprobs, request.logprobs_of) == (2, "processed")
    report = json.loads(ran.out)
    assert report["sampling"]["repetition_penalty"] == 1.2
    assert report["origins"] == ["ngram", "target"] * 4
    assert report["logprobs_of"] == "processed"
    assert report["logprobs"][7] == {"logprob": -0.5, "top": [{"id": 0, "logprob": -0.5}, {"id": 4, "logprob": -1.25}]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--logit-bias", "7:2"), "--logit-bias 7:2 is not ID=VALUE"),
        (("--logit-bias", "7=nan"), "bias of (7,) is nan"),
        (("--logit-bias", "7=1", "--logit-bias", "7=2"), "logit_bias names id 7 twice"),
        (("--repetition-penalty", "0"), "repetition_penalty is 0.0; allowed"),
        (("--frequency-penalty", "nan"), "frequency_penalty is nan; allowed"),
        (("--no-repeat-ngram", "-1"), "no_repeat_ngram is -1; allowed"),
        (("--logprobs", "2"), "add --json"),
        (("--json", "--logprobs-of", "processed"), "add --logprobs"),
        (("--ignore-eos", "--min-new-tokens", "3"), "--ignore-eos"),
    ],
)
def test_bad_options_about_logits_are_one_line_before_a_model_is_loaded(
    run: Run, engine: Engine, words: tuple[str, ...], says: str
) -> None:
    """What was given, what is allowed; exit code 2."""
    ran = run("generate", "Hi", *words)
    assert (ran.code, ran.err.count("\n"), engine.loads) == (2, 1, [])
    assert says in ran.err


def test_defaults_are_those_of_the_library(run: Run, engine: Engine) -> None:
    """Unasked: the preset, free drafts and its specialists, greedy, the chat template if there is one."""
    run("generate", "Hi")
    assert engine.loads[0][0] == "smollm2-135m"
    assert engine.builds[0][0] == default_drafts("smollm2-135m")
    assert engine.prompts[0] == ("Hi", None)
    assert engine.requests[0].temperature == 0


def test_draft_none_is_plain_decoding(run: Run, engine: Engine) -> None:
    """``none`` builds an empty pool; beside another draft it is refused."""
    assert run("generate", "Hi", "--draft", "none").code == 0
    assert engine.builds[0][0] == ()
    ran = run("generate", "Hi", "--draft", "none", "--draft", "ngram")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


def test_json_on_standard_output_has_the_stable_keys_and_no_text(run: Run) -> None:
    """Standard output is one JSON object; the keys are those of the documentation."""
    ran = run("generate", "Hi", "--json", "--seed", "7", "--temperature", "1.3")
    report = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert {"text", "token_ids", "finish_reason", "stats", "backend", "target", "seed"} <= set(report)
    assert (report["text"], report["token_ids"], report["finish_reason"]) == (TEXT, list(range(8)), "eos")
    assert (report["backend"], report["target"], report["seed"]) == ("numpy", "smollm2-135m", 7)
    stats = report["stats"]
    assert (stats["tokens_per_second"], stats["mean_emitted_length"], stats["acceptance_rate"]) == (4.0, 1.6, 0.5)
    assert (stats["steps"], stats["plain_tokens_per_second"]) == (5, 2.5)
    assert {"selector_seconds", "shadow_seconds", "lost"} <= set(stats)
    ngram = stats["arms"]["ngram"]
    assert (ngram["pulls"], ngram["drafted"], ngram["accepted"], ngram["score"]) == (3, 6, 3, None)


@pytest.mark.parametrize("words", [("--json", "report.json"), ("--json=report",)], ids=["word", "equals"])
def test_json_to_a_file_leaves_the_text_on_standard_output(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A file name takes the report; the text still streams."""
    monkeypatch.chdir(tmp_path)
    ran = run("generate", "Hi", *words)
    assert ran.out == f"{TEXT}\n"
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text(encoding="utf-8"))["text"] == TEXT


def test_word_after_json_is_the_prompt_unless_it_is_a_json_file(run: Run, engine: Engine) -> None:
    """``--json`` does not swallow the prompt."""
    ran = run("generate", "--json", "Hi")
    assert json.loads(ran.out)["finish_reason"] == "eos"
    assert engine.prompts == [("Hi", None)]


def test_compare_decodes_again_without_drafts(run: Run, engine: Engine) -> None:
    """``--compare`` builds an empty pool, runs the same request and reports both."""
    report = json.loads(run("generate", "Hi", "--compare", "--json").out)
    assert [drafts for drafts, _ in engine.builds] == [default_drafts("smollm2-135m"), ()]
    assert report["plain"] == {"tokens_per_second": 4.0, "token_ids": list(range(8)), "same_tokens": True}
    assert "plain" not in json.loads(run("generate", "Hi", "--json").out)


def test_trace_has_one_strict_json_line_a_step(run: Run, tmp_path: Path) -> None:
    """Numbers that JSON lacks become null."""
    file = tmp_path / "trace.jsonl"
    assert run("generate", "Hi", "--trace", str(file)).code == 0
    lines = file.read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line, parse_constant=lambda name: pytest.fail(name)) for line in lines]
    assert [step["step"] for step in steps] == list(range(5))
    assert steps[0]["scores"] == [1.5, None]


@pytest.mark.parametrize("words", [(), ("-",), ("--prompt-file", "-")])
def test_prompt_comes_from_standard_input(run: Run, engine: Engine, words: tuple[str, ...]) -> None:
    """Without a prompt, or for -, the prompt is read as UTF-8 and loses one newline."""
    assert run("generate", *words, stdin="grüße\n\n".encode()).code == 0
    assert engine.prompts == [("grüße\n", None)]


def test_prompt_comes_from_a_file(run: Run, engine: Engine, tmp_path: Path) -> None:
    """A file is read as UTF-8, with or without a byte order mark, with either line end."""
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"\xef\xbb\xbfdef f():\r\n    return 1\r\n")
    assert run("generate", "--prompt-file", str(file)).code == 0
    assert engine.prompts == [("def f():\n    return 1", None)]


def test_prompt_that_begins_with_a_hyphen(run: Run, engine: Engine) -> None:
    """After -- everything is a prompt, --json too."""
    assert run("generate", "--", "--json").code == 0
    assert engine.prompts == [("--json", None)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--temperature", "-0.5"), "temperature is -0.5; allowed"),
        (("--temperature", "nan"), "temperature is nan; allowed"),
        (("--temperature", "warm"), "temperature"),
        (("--top-p", "0"), "top_p is 0.0; allowed"),
        (("--top-p", "1.5"), "top_p is 1.5; allowed"),
        (("--top-k", "-1"), "top_k is -1; allowed"),
        (("--top-k", "1.5"), "'1.5' is not an integer"),
        (("--min-p", "2"), "min_p is 2.0; allowed"),
        (("--seed", "-1"), "seed is -1; allowed"),
        (("--seed", "18446744073709551616"), "seed is 18446744073709551616; allowed"),
        (("--max-new-tokens", "-1"), "max_new_tokens is -1; allowed"),
        (("--min-new-tokens", "300"), "min_new_tokens is 300; allowed"),
        (("--stop", ""), "stop string is empty"),
        (("--draft-max", "0"), "draft_max is 0; allowed"),
        (("--selector", "best"), "unknown selector 'best'; known: "),
        (("--method", "typical"), "method is 'typical'; allowed: auto, token, block, path"),
        (("--backend", "cuda"), "unknown backend 'cuda'; known: "),
        (("--nonsense",), "--nonsense"),
        (("--threads", "two"), "'two' is not an integer"),
        (("more",), "more"),
        (("--prompt-file", "x"), "two prompts"),
    ],
)
def test_wrong_words_end_with_2_before_a_model_is_loaded(
    run: Run, engine: Engine, words: tuple[str, ...], said: str
) -> None:
    """What the user typed wrong is one line that says what was given; no model is touched."""
    ran = run("generate", "Hi", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert engine.loads == []


@pytest.mark.parametrize(
    ("words", "stdin", "said"),
    [
        (("",), None, "the prompt is empty"),
        ((), None, "there is no prompt"),
        ((), b"", "the prompt is empty"),
        ((), b"\n", "the prompt is empty"),
        ((), b"ab\xff", "not UTF-8 at byte 2"),
        (("--prompt-file", "no/such/file"), None, "no/such/file cannot be read"),
        (("--prompt-file", "."), None, "cannot be read"),
    ],
)
def test_missing_or_unreadable_prompt_ends_with_2(
    run: Run, words: tuple[str, ...], stdin: bytes | None, said: str
) -> None:
    """There is always something to do about a prompt."""
    ran = run("generate", *words, stdin=stdin)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownName("unknown model 'x'; presets: smollm2-135m"), 2),
        (ContractError("device is 'tpu'; allowed: cpu"), 2),
        (ModelError("pip could not download\nit"), 1),
        (CapabilityError("the cache cannot roll back"), 1),
        (BackendUnavailable("triton cannot be loaded: no GPU"), 1),
        (FlashSpecError("odd"), 1),
        (ImportError("No module named 'torch'"), 1),
    ],
)
@pytest.mark.parametrize("where", ["load_error", "build_error"])
def test_failures_are_one_line(run: Run, engine: Engine, error: Exception, code: int, where: str) -> None:
    """1 for what failed, 2 for names and values that the user typed; never a traceback."""
    setattr(engine, where, error)
    ran = run("generate", "Hi")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1


def test_unexpected_error_is_not_hidden(run: Run, engine: Engine) -> None:
    """A bug keeps its traceback."""
    engine.build_error = ZeroDivisionError("bug")
    with pytest.raises(ZeroDivisionError):
        run("generate", "Hi")


@pytest.mark.parametrize("words", [(), ("--no-stream",)])
def test_ctrl_c_while_streaming_keeps_the_text_and_ends_with_130(
    run: Run, engine: Engine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """What was generated so far is printed, the line ends, the trace is closed; no traceback, no report."""
    engine.fail_at, engine.failure = 2, KeyboardInterrupt()
    trace, report = tmp_path / "trace.jsonl", tmp_path / "report.json"
    ran = run("generate", "Hi", "--trace", str(trace), "--json", str(report), *words)
    assert (ran.code, ran.out, ran.err) == (130, "Hello wörld\n", "")
    assert len(trace.read_text(encoding="utf-8").splitlines()) == 2
    assert not report.exists()


def test_ctrl_c_with_json_on_standard_output_prints_nothing(run: Run, engine: Engine) -> None:
    """Half a report would not be JSON."""
    engine.fail_at, engine.failure = 2, KeyboardInterrupt()
    ran = run("generate", "Hi", "--json")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_ctrl_c_while_loading_ends_with_130(run: Run, engine: Engine) -> None:
    """An interrupt before the first token is quiet too."""
    engine.load_error = KeyboardInterrupt()
    ran = run("generate", "Hi")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


def test_failure_in_the_middle_keeps_the_text(run: Run, engine: Engine) -> None:
    """An error after some text ends the line first."""
    engine.fail_at, engine.failure = 1, ModelError("the disk is gone")
    ran = run("generate", "Hi")
    assert (ran.code, ran.out, ran.err) == (1, "Hello\n", "error: the disk is gone\n")


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_file_that_cannot_be_written_is_one_line(run: Run, tmp_path: Path, option: str) -> None:
    """The file is named."""
    name = str(tmp_path / "no" / "folder" / "x.json")
    ran = run("generate", "Hi", option, name)
    assert (ran.code, ran.out) == (2, "")
    assert f"{name} cannot be written" in ran.err
    assert ran.err.count("\n") == 1


def test_one_file_for_trace_and_json_is_refused(run: Run, tmp_path: Path) -> None:
    """Neither overwrites the other."""
    name = str(tmp_path / "x.json")
    ran = run("generate", "Hi", "--trace", name, "--json", name)
    assert ran.code == 2
    assert "both name" in ran.err


def test_full_disk_under_the_trace_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A trace that cannot grow ends the run with the file's name."""
    name = str(tmp_path / "trace.jsonl")
    real = Path.open

    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            """Nothing to do."""

    def opened(self: Path, *args: Any, **kwargs: Any) -> Any:
        return Full() if str(self) == name else real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opened)
    ran = run("generate", "Hi", "--trace", name)
    assert ran.code == 1
    assert ran.err == f"error: {name} cannot be written: No space left on device; name another file\n"


def test_reader_that_goes_away_ends_quietly(run: Run, engine: Engine) -> None:
    """A closed pipe is no error message."""
    engine.fail_at, engine.failure = 1, BrokenPipeError()
    ran = run("generate", "Hi")
    assert (ran.code, ran.err) == (141, "")
