"""The verifier behind the signatures of SGLang and FlashInfer: law, layout, guarded install, recorded signatures."""

from __future__ import annotations

import ast
import logging
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the torch extra is not installed")

from flashspec import get_backend  # noqa: E402
from flashspec.errors import BackendUnavailable, CapabilityError, ContractError  # noqa: E402
from flashspec.integrations import flashinfer, sglang, tensors  # noqa: E402
from flashspec.integrations.guard import Replacement  # noqa: E402
from flashspec_conformance.engines import restated  # noqa: E402
from flashspec_conformance.functions.asking import ask  # noqa: E402
from flashspec_conformance.functions.counting import drawn  # noqa: E402
from flashspec_conformance.functions.function import COINS, OWN, SAMPLED, Function  # noqa: E402
from flashspec_conformance.functions.judge import judge  # noqa: E402
from flashspec_conformance.functions.laws import chained, single  # noqa: E402

TORCH = get_backend("torch")

SGLANG = """
def chain_speculative_sampling_triton(predicts, accept_index, accept_token_num, candidates, retrive_index,
    retrive_next_token, retrive_next_sibling, uniform_samples, uniform_samples_for_final_sampling, target_probs,
    draft_probs, threshold_single, threshold_acc, deterministic, *, block_verification=False): pass
"""
"""As in the wheel of sglang 0.5.23."""
HOOKS = """
import enum
class HookType(enum.Enum): REPLACE = "replace"
class HookRegistry:
    given = []
    @classmethod
    def register(cls, target, hook, hook_type=None, *, source=None): cls.given.append((target, hook, hook_type))
"""
FLASHINFER = """
def chain_speculative_sampling(draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None,
    maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, offset=None): pass
"""
"""As in the wheels of flashinfer-python 0.7.2 and 0.7.4."""


def stub(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Any:
    """A module with that source, and packages above it."""
    module = ModuleType(name)
    exec(source, vars(module))
    parts = name.split(".")
    for n in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:n]), ModuleType(".".join(parts[:n])))
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stubs of both engines in known versions."""
    versions = {"sglang": "0.5.23", "flashinfer-python": "0.7.4"}
    found = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or found(name))
    return {
        "sglang": stub(monkeypatch, sglang.MODULE, SGLANG),
        "flashinfer": stub(monkeypatch, "flashinfer.sampling", FLASHINFER),
        "hooks": stub(monkeypatch, "sglang.srt.plugins.hook_registry", HOOKS),
        "versions": versions,
    }


def as_sglang(p: Any, q: Any, drafts: Any, coins: Any, block: bool = False) -> Any:
    """One call with SGLang's tensors, poisoned where the kernel writes."""
    batch, count = drafts.shape
    slots = count + 1
    predicts = torch.full((batch * slots,), 777, dtype=torch.int32)
    accept_index = torch.full((batch, slots), 777, dtype=torch.int32)
    accepted = torch.full((batch,), 777, dtype=torch.int32)
    candidates = torch.cat([torch.zeros(batch, 1, dtype=torch.int64), torch.from_numpy(drafts)], 1)
    index = torch.arange(batch * slots).reshape(batch, slots)
    uniform = torch.from_numpy(coins).float()
    near, far = torch.from_numpy(q), torch.from_numpy(p)
    sglang.chain_speculative_sampling(
        TORCH, predicts, accept_index, accepted, candidates, index, index, index, uniform,
        uniform[:, -1].contiguous(), far, near, 1.0, 1.0, True, block_verification=block,
    )  # fmt: skip
    return predicts, accept_index, accepted


def sglang_function(block: bool) -> Function:
    """The adapter as a function for the suite."""

    def many(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        predicts, accept_index, accepted = as_sglang(p, q, drafts, coins, block)
        return [predicts.numpy()[row[row >= 0]] for row in accept_index.numpy()], accepted.numpy()

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        tokens, accepted = many(p[None], q[None], drafts[None], coins[None])
        return tokens[0], int(accepted[0])

    return Function("sglang adapter", call, COINS, None, frozenset({SAMPLED}), dtype="float32", many=many)


@pytest.mark.parametrize("block", [False, True])
def test_behind_sglangs_signature_the_law_is_extracted_and_no_residual_is_no_trouble(block: bool) -> None:
    """Every promise that counts is kept, the one that SGLang's own kernel breaks among them."""
    judged = judge(sglang_function(block), 2000, [single()])
    assert judged.passed, [f for f in judged.findings if f.verdict == "fail"]
    assert judged.probes[0].method == "extracted"
    assert judged.verdict("empty_residual") == "pass"


@pytest.mark.parametrize("block", [False, True])
def test_with_sglangs_coins_the_decisions_are_sglangs(block: bool) -> None:
    """Token for token, on 400 requests whose rows depend on the drafts."""
    questions = drawn(chained(0.7, 1.3), True, 400, 5)
    assert ask(sglang_function(block), questions) == ask(restated.sglang(block), questions)


def test_sglang_places_that_emit_nothing_stay_as_they_were() -> None:
    """predicts keeps what was there, accept_index is -1 behind the accepted drafts."""
    law = np.array([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]], np.float32)
    near = np.full((1, 2, 3), 1 / 3, np.float32)
    predicts, accept_index, accepted = as_sglang(law, near, np.array([[1, 0]]), np.full((1, 3), 0.5))
    assert predicts.tolist() == [1, 2, 777]
    assert accept_index.tolist() == [[0, 1, -1]]
    assert accepted.tolist() == [1]
    spoiled = law.copy()
    spoiled[0, 1] = np.nan
    predicts, accept_index, accepted = as_sglang(spoiled, near, np.array([[1, 0]]), np.full((1, 3), 0.5))
    assert (predicts.tolist(), accepted.tolist()) == ([1, 777, 777], [1])


def test_behind_flashinfers_signature_the_law_is_that_of_the_target() -> None:
    """Counted, with a generator; and no id outside the vocabulary where no residual is left."""
    generator = torch.Generator()

    def many(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        tokens, _, emitted = flashinfer.chain_speculative_sampling(
            TORCH, "token", torch.from_numpy(q), torch.from_numpy(drafts), torch.from_numpy(p), generator=generator
        )
        return [row[row >= 0] for row in tokens.numpy()], emitted.numpy()

    def call(p: Any, q: Any, drafts: Any, coins: Any) -> Any:
        tokens, accepted = many(p[None], q[None], drafts[None], None)
        return tokens[0], int(accepted[0])

    function = Function("adapter", call, OWN, generator.manual_seed, frozenset({SAMPLED}), dtype="float32", many=many)
    judged = judge(function, 2000, [single()])
    assert judged.passed, [f for f in judged.findings if f.verdict == "fail"]
    nearly = torch.tensor([[[0.0, 0.5, 0.5, 0.0]]]).repeat(64, 1, 1)
    rows = torch.cat([nearly * (1 - 2**-12), nearly], 1)
    tokens, _, _ = flashinfer.chain_speculative_sampling(
        TORCH, "token", nearly, torch.ones(64, 1, dtype=torch.int32), rows, generator=generator
    )
    assert set(tokens[:, 0].tolist()) <= {1, 2}


def test_flashinfers_seeds_and_counters_are_honoured() -> None:
    """Seed and offset fix a row's tokens whatever its dtype of ids; counters are added to in place."""
    questions = drawn(chained(0.7, 1.3), True, 50, 5)
    p, q = torch.from_numpy(questions.p), torch.from_numpy(questions.q)
    ids = torch.from_numpy(questions.drafts)
    counter = torch.full((50,), 5, dtype=torch.int32)
    seed, offset = torch.arange(50), torch.full((50,), 2**32 + 3)

    def run(**given: Any) -> Any:
        return flashinfer.chain_speculative_sampling(TORCH, "block", q, ids.int(), p, **given)

    first, accepted, emitted = run(seed=seed, offset=offset, maybe_output_emitted_draft_token_num=counter)
    assert emitted is counter
    assert (counter - 5).equal(accepted)
    assert ((first >= 0).sum(1) - 1).equal(accepted)
    assert run(seed=seed, offset=3)[0].equal(first)
    assert not run(seed=seed, offset=4)[0].equal(first)
    assert not run(seed=seed + 1, offset=3)[0].equal(first)
    with pytest.raises(ContractError, match=r"allowed: \[B, K \+ 1, V\]"):
        flashinfer.chain_speculative_sampling(TORCH, "token", p, ids, p)


def test_rounds_without_drafts_and_empty_batches_are_judged() -> None:
    """K = 0 draws from the target's row; B = 0 gives empty tensors; another array library is refused."""
    for batch in (3, 0):
        law = torch.tensor([[[0.0, 0.0, 1.0]]]).repeat(batch, 1, 1)
        tokens, accepted, emitted = flashinfer.chain_speculative_sampling(
            TORCH, "token", law[:, :0], torch.empty(batch, 0, dtype=torch.int32), law
        )
        assert tokens.tolist() == [[2]] * batch
        assert accepted.tolist() == emitted.tolist() == [0] * batch
    with pytest.raises(CapabilityError, match="backend numpy takes numpy arrays"):
        flashinfer.chain_speculative_sampling(get_backend("numpy"), "token", law[:, :0], tokens[:, :0], law)


def test_both_are_installed_and_go_without_a_trace(engines: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """One log line each."""
    with caplog.at_level(logging.INFO, "flashspec.integrations"):
        for module, name, use in (
            (engines["sglang"], sglang.NAME, sglang.use),
            (engines["flashinfer"], "chain_speculative_sampling", flashinfer.use),
        ):
            before = vars(module)[name]
            done = use(backend="torch")
            assert isinstance(vars(module)[name], Replacement)
            done.uninstall()
            assert vars(module)[name] is before
    assert [r.message.split(":")[0] for r in caplog.records] == [
        "flashspec verifies in sglang 0.5.23",
        "flashspec verifies in flashinfer-python 0.7.4",
    ]


def test_the_plugin_registers_only_when_asked(engines: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Through SGLang's own hook registry, whose parameters are checked."""
    given = engines["hooks"].HookRegistry.given
    sglang.register()
    assert given == []
    monkeypatch.setenv("FLASHSPEC_SGLANG", "1")
    monkeypatch.setenv("FLASHSPEC_SGLANG_BACKEND", "torch")
    sglang.register()
    ((target, hook, kind),) = given
    assert (target, kind.value) == (f"{sglang.MODULE}.{sglang.NAME}", "replace")
    assert callable(hook)
    monkeypatch.setattr(engines["hooks"].HookRegistry, "register", lambda target, hook: None)
    with pytest.raises(BackendUnavailable, match=r"register has parameters \(target, hook\)"):
        sglang.register()


@pytest.mark.parametrize(("name", "use"), [("sglang", sglang.use), ("flashinfer", flashinfer.use)])
def test_drift_is_refused(engines: dict[str, Any], name: str, use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version, or one more parameter."""
    module, function = engines[name], sglang.NAME if name == "sglang" else "chain_speculative_sampling"
    source = (SGLANG if name == "sglang" else FLASHINFER).replace("target_probs,", "target_probs, more,", 1)
    own = vars(module)[function]
    exec(source, vars(module))
    with pytest.raises(BackendUnavailable, match=r"has parameters .*more.* nothing was changed"):
        use(backend="torch")
    setattr(module, function, own)
    monkeypatch.setitem(engines["versions"], "sglang" if name == "sglang" else "flashinfer-python", "9.0")
    with pytest.raises(BackendUnavailable, match=r"is 9\.0; allowed"):
        use(backend="torch")
    assert vars(module)[function] is own


@pytest.mark.parametrize(
    ("distribution", "path", "name", "parameters"),
    [
        ("sglang", "sglang/kernels/ops/speculative/reject_sampling.py", sglang.NAME, sglang.PARAMETERS),
        ("flashinfer-python", "flashinfer/sampling.py", "chain_speculative_sampling", flashinfer.PARAMETERS),
    ],
)
def test_signatures_are_those_of_the_wheel(
    distribution: str, path: str, name: str, parameters: tuple[str, ...]
) -> None:
    """Read from the sources of an installed wheel, without importing it."""
    try:
        place = Path(str(metadata.distribution(distribution).locate_file(path)))
    except metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed")
    tree = ast.parse(place.read_text(encoding="utf-8"))
    (found,) = (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    assert tuple(a.arg for a in (*found.args.args, *found.args.kwonlyargs)) == parameters


def test_ragged_and_shifted_callers_need_no_copy_of_rows() -> None:
    """Inclusive sums, drafts shifted by one row and flat drafts all come to one layout and one table."""
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)
    layout = tensors.with_bonus_rows(ends)
    assert layout.cu_rows.tolist() == [0, 3, 4, 8]
    assert tensors.exclusive(torch.tensor([3, 4, 8])).cu_rows.tolist() == [0, 3, 4, 8]
    shifted = torch.tensor([90, 1, 2, 91, 92, 3, -1, 5], dtype=torch.int32)
    table = [[1, 2, -1], [-1, -1, -1], [3, -1, 5]]
    assert tensors.unshifted(shifted, layout, 3).tolist() == table
    assert tensors.padded(torch.tensor([1, 2, 3, -1, 5]), ends, 3).tolist() == table
    assert (
        tensors.padded(torch.empty(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64), 2).tolist()
        == [[-1, -1]] * 2
    )
    nothing, none = torch.empty(0, dtype=torch.int32), tensors.exclusive(torch.zeros(2, dtype=torch.int64))
    assert tensors.unshifted(nothing, none, 2).tolist() == [[-1, -1]] * 2
    edges = torch.tensor([0.0, 0.5, 1.0])
    assert tensors.coins(edges).tolist() == [0, 2**31, 2**32 - 1]
    assert tensors.sampling_bits(edges[:2]).tolist() == [0, -(2**63)]
