"""The verifier in the place of transformers' own, and speculators around models that are loaded already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from transformers.generation import utils  # noqa: E402

from flashspec import get_backend  # noqa: E402
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError, NumericalError  # noqa: E402
from flashspec.hf import Loaded, Speculator  # noqa: E402
from flashspec.integrations.transformers import speculative_sampling, use  # noqa: E402

P = torch.tensor([[[0.2, 1.4, -0.3, -torch.inf], [0.9, 0.0, 0.4, -2.0], [0.0, 0.0, 1.0, 0.5]]])
Q = torch.tensor([[[1.0, 0.3, -0.3, -torch.inf], [-0.5, 0.8, 0.0, -2.0]]])
TORCH = get_backend("torch")
PROMPT = torch.tensor([[1, 2, 3, 1, 2, 9]])


@pytest.fixture
def installed() -> Iterator[None]:
    """The shim is there for one test."""
    own = utils._speculative_sampling
    done = use()
    yield
    done.uninstall()
    assert utils._speculative_sampling is own


@pytest.mark.parametrize("method", ["token", "block"])
def test_the_first_two_tokens_follow_the_target(method: str) -> None:
    """Chi-square on the joint table at 1,500 rounds; false alarm 1 in 1,000, from a fixed seed."""
    torch.manual_seed(4)
    rounds, counts = 1500, Counter[tuple[int, int]]()
    drafts = torch.multinomial(Q[0].softmax(-1), rounds, replacement=True).T
    second = torch.multinomial(P[0, 1].softmax(-1), rounds, replacement=True).tolist()
    for i in range(rounds):
        tokens = speculative_sampling(TORCH, drafts[i : i + 1], Q, P, method)[0].tolist()
        counts[tokens[0], [*tokens, second[i]][1]] += 1
    law = np.outer(P[0, 0].softmax(-1).double(), P[0, 1].softmax(-1).double())
    held = law > 0
    found = np.array([[counts[a, b] for b in range(4)] for a in range(4)])
    assert not found[~held].any()
    assert stats.chisquare(found[held], rounds * law[held] / law[held].sum()).pvalue > 1e-3


@pytest.mark.usefixtures("installed")
def test_assisted_generation_runs_on_it() -> None:
    """The same call as before; a residual that rounding left empty, which stops transformers, does not stop it."""
    p = torch.tensor([0.8487103581428528, 0.6920091509819031, -0.31601276993751526, -2.1152193546295166])
    q = torch.tensor([0.8487103581428528, 0.6920090913772583, -0.31601279973983765, -2.1152191162109375])
    assert bool((p.softmax(-1) <= q.softmax(-1)).all())
    for seed in range(20):
        torch.manual_seed(seed)
        tokens, matches = utils._speculative_sampling(torch.tensor([[3]]), q[None, None], 1, torch.stack([p, p])[None])
        assert tokens.shape == (1, int(matches) + 1)


def model(seed: int = 0, layers: int = 2, vocab: int = 96) -> Any:
    """A tiny model with random weights."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, eos_token_id=94, pad_token_id=95, bos_token_id=None,
        initializer_range=0.2,
    )  # fmt: skip
    made = transformers.LlamaForCausalLM(config).eval()
    made.generation_config.eos_token_id, made.generation_config.pad_token_id = None, 95
    return made


@pytest.mark.usefixtures("installed")
def test_generate_with_an_assistant_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round of ``assistant_model=`` with sampling is judged here; the lossy weight is left to transformers."""
    from flashspec.integrations import transformers as ours

    calls = []

    def counted(*given: Any) -> Any:
        calls.append(len(given))
        return speculative_sampling(*given)

    monkeypatch.setattr(ours, "speculative_sampling", counted)
    asked = {"do_sample": True, "max_new_tokens": 20, "assistant_model": model(1), "temperature": 0.7}
    found = model().generate(PROMPT, **asked)
    assert found.shape[1] == 26
    assert len(calls) > 2
    before = len(calls)
    model().generate(PROMPT, assistant_ensemble_weight=0.5, **asked)
    assert len(calls) == before


def test_rows_without_a_law_are_an_error_and_later_ones_are_not_read() -> None:
    """NaN behind a rejection is not reached; before it, nothing comes out."""
    sure = torch.full((1, 3, 4), -30.0)
    sure[0, :, 1] = 30.0
    sure[0, 2] = torch.nan
    near = torch.zeros(1, 2, 4)
    assert speculative_sampling(TORCH, torch.tensor([[0, 1]]), near, sure).tolist() == [[1]]
    with pytest.raises(NumericalError, match=r"row 2 \(NONFINITE"):
        speculative_sampling(TORCH, torch.tensor([[1, 1]]), near, sure)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_what_does_not_fit_is_refused(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, methods, and a transformers of other parameters or another version."""
    verifier = get_backend(backend)
    with pytest.raises(ContractError, match=r"allowed: \[1, k\]"):
        speculative_sampling(verifier, torch.tensor([[0]]), Q, P)
    assert speculative_sampling(verifier, torch.tensor([[0, 1]]), Q.bfloat16(), P).shape[0] == 1
    with pytest.raises(CapabilityError, match="method is 'tree'"):
        use("tree")
    own = utils._speculative_sampling
    monkeypatch.setattr(utils, "_speculative_sampling", lambda candidate_input_ids, more: None)
    with pytest.raises(BackendUnavailable, match=r"has parameters \(candidate_input_ids, more\)"):
        use(backend=backend)
    monkeypatch.setattr(utils, "_speculative_sampling", own)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "6.0.1")
    with pytest.raises(BackendUnavailable, match=r"transformers is 6.0.1; allowed: 5.19"):
        use(backend=backend)
    assert utils._speculative_sampling is own


class Words:
    """As much of a tokenizer as decoding needs."""

    eos_token_id = None

    def decode(self, ids: Any, **options: Any) -> str:
        return " ".join(map(str, ids))


def test_a_speculator_takes_models_that_are_loaded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The migration from ``assistant_model``: the text of greedy generate, with the assistant among the drafts."""
    monkeypatch.setenv("FLASHSPEC_CACHE", str(tmp_path))
    target, helper, words = model(), model(1), Words()
    speculator = Speculator.of(target, words, helper, drafts=["ngram"], draft_max=4, selector="random")
    assert [d.name for d in speculator.engine.drafters] == ["model:LlamaForCausalLM", "ngram"]
    found = target.generate(PROMPT, custom_generate=speculator, do_sample=False, max_new_tokens=20)
    assert torch.equal(found, target.generate(PROMPT, do_sample=False, max_new_tokens=20))
    with pytest.raises(CapabilityError, match="has 100 token ids, the target 96"):
        Speculator.of(target, words, model(1, vocab=100))
    with pytest.raises(ContractError, match="training mode"):
        Loaded.of(model().train(), words)
