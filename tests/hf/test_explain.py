"""Outputs that part at a tie, by a draw, or by another law are told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

from flashspec.cli import main  # noqa: E402
from flashspec.cli.wiring import Wiring  # noqa: E402
from flashspec.errors import ContractError  # noqa: E402
from flashspec.hf.explain import explain  # noqa: E402

Make = Callable[..., Any]
PROMPT = (1, 2, 3, 1, 2, 9)


def greedy(target: Any, count: int = 12) -> list[int]:
    """The model's own new tokens."""
    out = target.model.generate(torch.tensor([PROMPT]), do_sample=False, max_new_tokens=count, eos_token_id=None)
    return [int(t) for t in out[0, len(PROMPT) :]]


def test_same_and_longer_outputs_are_told(tiny: Make) -> None:
    """Nothing is computed for them."""
    target = tiny()
    text = greedy(target)
    assert explain(target, PROMPT, text, text).verdict == "same"
    found = explain(target, PROMPT, text, text[:5])
    assert (found.verdict, found.position) == ("longer", None)
    assert "first 5 tokens" in found.reason


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_token_that_the_target_would_not_take_is_another_law(tiny: Make, dtype: str) -> None:
    """Position, tokens and distance are those of the model, in either order of the outputs."""
    loaded = tiny()
    target = attrs.evolve(loaded, model=loaded.model.to(getattr(torch, dtype)), dtype=dtype)
    text = greedy(target)
    logits = target.model(torch.tensor([[*PROMPT, *text[:4]]])).logits[0, -1].detach().double()
    other = [*text[:4], int(logits.argmin()), *text[5:]]
    found = explain(target, PROMPT, text, other)
    assert (found.verdict, found.position, found.tokens) == ("law", 4, (text[4], other[4]))
    assert found.margin == pytest.approx(float(logits.max() - logits.min()))
    assert "output B has a token" in found.reason
    assert "output A has a token" in explain(target, PROMPT, other, text).reason
    assert found.rounding is not None
    assert found.spacing is not None
    assert found.rounding >= 2 * found.spacing
    assert (found.spacing > 1e-3) is (dtype == "bfloat16")


def test_tokens_with_one_logit_are_a_near_tie(tiny: Make) -> None:
    """Two rows of the head are equal, so that no computation of the target tells the tokens apart."""
    target = tiny()
    text = greedy(target, 3)
    head = target.model.get_output_embeddings().weight
    own, twin = text[2], 77 if text[2] != 77 else 78
    with torch.no_grad():
        head[twin] = head[own]
    text = greedy(target, 3)
    assert text[2] in (own, twin)
    other = [*text[:2], own + twin - text[2]]
    found = explain(target, PROMPT, text, other)
    assert found.verdict == "near-tie"
    assert found.margin == pytest.approx(0, abs=1e-6)


def test_sampled_outputs_are_draws(tiny: Make) -> None:
    """With the probabilities of both tokens at the temperature."""
    target = tiny()
    text = greedy(target)
    other = [*text[:3], (text[3] + 1) % 90]
    found = explain(target, PROMPT, text, other, 0.7)
    law = (target.model(torch.tensor([[*PROMPT, *text[:3]]])).logits[0, -1].detach() / 0.7).softmax(-1)
    assert found.verdict == "draws"
    assert found.probabilities == pytest.approx([float(law[text[3]]), float(law[other[3]])], rel=1e-4)


def test_what_cannot_be_compared_is_refused(tiny: Make) -> None:
    """An empty prompt, ids outside the vocabulary, a negative temperature."""
    target = tiny()
    for prompt, second, heat, words in (
        ((), (1,), 0.0, "prompt is empty"),
        (PROMPT, (96,), 0.0, "token id is 96"),
        (PROMPT, (1,), -1.0, "temperature is -1"),
    ):
        with pytest.raises(ContractError, match=words):
            explain(target, prompt, (2,), second, heat)


def test_the_command_reads_reports_files_and_texts(
    tiny: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1 for another law, 0 for the rest, 2 for a missing prompt; JSON as asked for."""
    target = tiny()
    wiring = Wiring(load=lambda name, **options: target)
    ids = tuple(target.tokenizer("abcab")["input_ids"])
    out = target.model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=6, eos_token_id=None)
    text = out[0, len(ids) :].tolist()
    a, b = tmp_path / "a.json", tmp_path / "b.txt"
    a.write_text(json.dumps({"token_ids": text}), encoding="utf-8")
    b.write_text("zzzz", encoding="utf-8")
    words = ["explain", str(a), str(a), "--target", "x", "--prompt", "abcab"]
    assert main(words, wiring) == 0
    assert capsys.readouterr().out.startswith("same: ")
    report = tmp_path / "r.json"
    words[2] = str(b)
    assert main([*words, "--json", str(report)], wiring) == 1
    assert json.loads(report.read_text(encoding="utf-8"))["verdict"] == "law"
    assert "first difference: new token 0" in capsys.readouterr().out
    assert main([*words[:2], "zzzz", *words[3:]], wiring) == 1
    assert main(words[:5], wiring) == 2
    assert "--prompt" in capsys.readouterr().err
    assert main([*words[:2], "gone.txt", *words[3:]], wiring) == 1
    assert "gone.txt is no file" in capsys.readouterr().err
    a.write_text("{}", encoding="utf-8")
    assert main(words, wiring) == 1
    assert "is no report of generate --json" in capsys.readouterr().err
