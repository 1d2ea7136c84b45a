"""Training: the unrolled student is the draft, a stopped run goes on to the same end, the folder says what it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec import registry  # noqa: E402
from flashspec.contract import Sampling, Stream  # noqa: E402
from flashspec.errors import ContractError, ModelError  # noqa: E402
from flashspec.hf import Loaded  # noqa: E402
from flashspec.hf.heads.following import Fed  # noqa: E402
from flashspec.hf.heads.kinds import KINDS, Ground, drafter  # noqa: E402
from flashspec.hf.heads.loading import load  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402
from flashspec.training import __main__ as command  # noqa: E402
from flashspec.training import checkpoint  # noqa: E402
from flashspec.training import run as running  # noqa: E402
from flashspec.training.course import prepare  # noqa: E402
from flashspec.training.data import Corpus, gather, write  # noqa: E402
from flashspec.training.options import Options  # noqa: E402
from flashspec.training.prompts import Seed, library, seeds  # noqa: E402
from flashspec.training.run import pace, run  # noqa: E402
from tests.heads import tiny  # noqa: E402
from tests.hf.conftest import byte_tokenizer  # noqa: E402

VOCAB = 96
BACKEND = registry.get_backend("torch")


def quiet(stage: str, done: int, size: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def target() -> Loaded:
    """A random model with a byte tokenizer."""
    model = tiny.target(VOCAB).float()
    model.generation_config.eos_token_id = VOCAB - 2
    model.generation_config.pad_token_id = VOCAB - 1
    return Loaded(model, byte_tokenizer(VOCAB), "tiny", None, "float32", "cpu")


def asked(out: Path, kind: str = "eagle", **more: Any) -> Options:
    """A run of a few seconds."""
    small = {"steps": 6, "batch": 4, "length": 24, "sequences": 40, "vocab": 30, "every": 2, "width": 64, "heads": 3}
    return Options(kind=kind, out=str(out), **{**small, "layers": 2, "rate": 0.01, **more})


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_is_read_again(tmp_path: Path, target: Loaded, kind: str) -> None:
    """The loss on held-out text falls; the folder makes a draft that proposes."""
    card = run(asked(tmp_path, kind, steps=20, every=10), quiet, target)
    assert card["after"]["all"]["loss"] < card["before"]["all"]["loss"]
    assert set(card["after"]) == {"all", "code", "prose"}
    curve = json.loads((tmp_path / "curve.json").read_text(encoding="utf-8"))
    assert [point["step"] for point in curve] == [0, 10, 20]
    made: Any = load(Ground(target.model, HFCausalLM.of(target.model, BACKEND), BACKEND), tmp_path, "it", "tiny")
    fed: Any = Fed.of(made, HFCausalLM.of(target.model, BACKEND)) if kind in ("eagle", "medusa") else made
    draft, _ = fed.propose(fed.start([1, 2, 3, 4]), 3, Sampling.of(1, temperature=0.7), Stream.of([0], [4]))
    assert len(draft.tokens) == 3
    assert "held-out" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["eagle", "medusa", "exit", "model"])
def test_a_guess_of_training_is_the_draft_of_decoding(tmp_path: Path, target: Loaded, kind: str) -> None:
    """At several places of a text, the unrolled guesses' first choices are what the drafter proposes greedily."""
    options = asked(tmp_path, kind)
    corpus = gather(options, target, quiet)
    course = prepare(options, target, corpus)
    with torch.no_grad():
        for weight in course.module.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    row = corpus.of(np.array([int(np.argmax((corpus.tokens >= 0).sum(1)))]))
    text = [int(t) for t in row.tokens[0] if t >= 0]
    with torch.no_grad():
        guesses = course.student(course.lesson(row))
    ground = Ground(target.model, HFCausalLM.of(target.model, BACKEND), BACKEND)
    made: Any = drafter(ground, "it", course.config, course.module, course.ids)
    fed: Any = Fed.of(made, ground.lm) if kind in ("eagle", "medusa") else made
    for place in range(2, len(text) - 4):
        known = text[: place + 1 + course.shift]
        state = fed.start(known)
        for number, guess in enumerate(guesses):
            draft, _ = fed.propose(state, number + 1, Sampling.of(1, temperature=0), Stream.of([0], [1]))
            assert draft.tokens[-1] == int(course.ids[guess[0, place].argmax()])
            # The unrolled chain follows the text; decoding follows its own draft. They part where these differ.
            if draft.tokens[-1] != text[place + 1 + course.shift + number]:
                break


def test_a_stopped_run_goes_on_to_the_same_weights(
    tmp_path: Path, target: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of step 4 keeps steps 1 to 3; the end is that of an undisturbed run, bit for bit."""
    run(asked(tmp_path / "whole"), quiet, target)
    steps: list[int] = []
    real = running._step

    def interrupted(options: Any, course: Any, optimiser: Any, learned: Any, step: int) -> float:
        if step == 3 and not steps:
            steps.append(step)
            raise KeyboardInterrupt
        return real(options, course, optimiser, learned, step)

    monkeypatch.setattr(running, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(asked(tmp_path / "twice"), quiet, target)
    assert not (tmp_path / "twice" / "config.json").exists()
    run(asked(tmp_path / "twice"), quiet, target)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "twice"))
    assert one == two


def test_a_full_disk_keeps_the_checkpoint_before(
    tmp_path: Path, target: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second checkpoint fails; the run goes on from the first."""
    real, calls = checkpoint.write, list[int]()

    def full(folder: Any, module: Any, optimiser: Any, done: Any, facts: Any) -> None:
        calls.append(done.step)
        if done.step == 4:
            raise OSError(28, "No space left on device")
        real(folder, module, optimiser, done, facts)

    monkeypatch.setattr(checkpoint, "write", full)
    with pytest.raises(OSError, match="No space"):
        run(asked(tmp_path), quiet, target)
    monkeypatch.setattr(checkpoint, "write", real)
    begun: list[int] = []
    run(asked(tmp_path), lambda stage, done, size: begun.append(done) if "training" in stage else None, target)
    assert begun == [3, 4, 5, 6]


def test_a_folder_of_another_run_is_refused(tmp_path: Path, target: Loaded) -> None:
    """What differs is named; a damaged checkpoint says what to delete."""
    run(asked(tmp_path), quiet, target)
    with pytest.raises(ContractError, match=r"rate 0\.01, this one has 0\.02"):
        run(asked(tmp_path, rate=0.02), quiet, target)
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ModelError, match="delete it to begin anew"):
        run(asked(tmp_path), quiet, target)


def test_a_part_of_the_text_that_was_cut_short_is_written_again(tmp_path: Path, target: Loaded) -> None:
    """The same text comes out."""
    options = asked(tmp_path, sequences=70)
    first = gather(options, target, quiet)
    part = sorted(tmp_path.rglob("*.npz"))[1]
    part.write_bytes(part.read_bytes()[:50])
    again = gather(options, target, quiet)
    assert np.array_equal(first.tokens, again.tokens)


def test_a_sequence_begins_with_its_prompt_and_ends_with_eos(target: Loaded) -> None:
    """What stands before ``first`` is the prompt; nothing follows an end token."""
    made = write(target, [Seed("a", "hello", False), Seed("b", "a longer beginning than that", False)], 32, 1.0, 3)
    for row, prompt in enumerate(("hello", "a longer beginning than that")):
        ids = target.tokenizer(prompt)["input_ids"][:16]
        assert made.first[row] == len(ids)
        assert made.tokens[row, : len(ids)].tolist() == ids
        text = made.tokens[row].tolist()
        if VOCAB - 2 in text:
            assert set(text[text.index(VOCAB - 2) + 1 :]) <= {-1}


def test_held_out_text_has_every_kind_and_no_beginning_that_is_learned() -> None:
    """Of 20 beginnings of each kind, two are held out, with all of their sequences."""
    begun = np.arange(200) % 40
    tokens = np.stack([begun, np.ones(200), np.arange(200)], 1).astype(np.int32)
    learned, held = Corpus(tokens, np.full(200, 2, np.int32), ("code", "prose") * 100).split()
    one, other = (set(part.tokens[:, 0].tolist()) for part in (learned, held))
    assert not one & other
    assert (len(one), len(other), sorted(held.kinds)) == (36, 4, ["code"] * 10 + ["prose"] * 10)


def test_seeds_are_repeatable_and_mixed() -> None:
    """The same for the same number; code and prose by turns; the library has hundreds of pieces."""
    assert seeds("self", 50, 1) == seeds("self", 50, 1)
    assert {s.kind for s in seeds("self", 2, 0)} == {"code", "prose"}
    assert {s.kind for s in seeds("self:prose", 30, 0)} == {"prose"}
    assert len(library()) > 300


def test_the_rate_rises_then_falls() -> None:
    """To its largest value after 5 % of the steps, to a twentieth at the end."""
    rates = [pace(step, 100) for step in range(100)]
    assert max(rates) == rates[4] == 1.0
    assert rates[-1] < 0.06


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "tree"}, "eagle, medusa, exit, model"),
        ({"store": "int4"}, "bfloat16, int8, float32"),
        ({"steps": 0}, "steps is 0"),
        ({"data": "file.jsonl"}, "--licence"),
        ({"temperature": -1.0}, "temperature is -1"),
        ({"vocab": -1}, "vocab is -1"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    """Before anything is loaded."""
    with pytest.raises(ContractError, match=words):
        asked(tmp_path, **fields)


@pytest.mark.parametrize(("taps", "kind"), [("9", "eagle"), ("2,2", "eagle"), ("first", "eagle"), ("", "eagle")])
def test_taps_that_the_target_lacks_are_refused(tmp_path: Path, target: Loaded, taps: str, kind: str) -> None:
    """Named with what is allowed."""
    options = asked(tmp_path, kind, taps=taps)
    with pytest.raises(ContractError, match="allowed: last, fused"):
        prepare(options, target, gather(options, target, quiet))


def test_a_file_of_prompts_and_texts_is_taken(tmp_path: Path, target: Loaded) -> None:
    """Its categories are the kinds; a line that is neither is refused with its form."""
    path = tmp_path / "data.jsonl"
    lines = [{"text": f"some text {n}", "category": "notes"} for n in range(12)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    options = asked(tmp_path / "out", data=str(path), licence="CC0", steps=2)
    card = run(options, quiet, target)
    assert set(card["after"]) == {"all", "notes"}
    assert card["data_licence"] == "CC0"
    path.write_text('{"other": 1}', encoding="utf-8")
    with pytest.raises(ContractError, match='"prompt"'):
        gather(attrs.evolve(options, out=str(tmp_path / "out2")), target, quiet)


Main = Callable[..., int]


def test_the_command_ends_with_one_line_for_every_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """130 after Ctrl-C, 1 for a full disk, 2 for a wrong option; no traceback."""
    faults = {130: KeyboardInterrupt(), 1: OSError(28, "No space left on device")}
    for code, fault in faults.items():

        def broken(options: Any, progress: Any, fault: BaseException = fault) -> Any:
            raise fault

        monkeypatch.setattr(command, "run", broken)
        assert command.main(["--out", str(tmp_path)]) == code
        assert "run the same command again to go on" in capsys.readouterr().err
    assert command.main(["--out", str(tmp_path), "--kind", "tree"]) == 2
    assert "allowed" in capsys.readouterr().err
