"""Loading by preset, folder and hub id; a tiny random model stands for the real one."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from flashspec.errors import CapabilityError, ContractError, ModelError, UnknownName  # noqa: E402
from flashspec.hf import dtype as dtypes  # noqa: E402
from flashspec.hf import hub  # noqa: E402
from flashspec.hf.loading import Loaded, encode_prompt, load  # noqa: E402

loading = importlib.import_module("flashspec.hf.loading")
TEMPLATE = "{% for m in messages %}<u>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random llama of 40 tokens and a character tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("tiny")
    letters = ["<unk>", "<u>", "<a>", *"abcdefghijklmnopqrstuvwxyz .!?:123456"]
    core = Tokenizer(models.WordLevel({token: i for i, token in enumerate(letters)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", additional_special_tokens=["<u>", "<a>"]
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(str(folder))
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(letters),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(str(folder))
    return folder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection is an error."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_folder_loads_without_network(tiny: Path) -> None:
    """A folder is loaded in evaluation mode, in the dtype asked for, with its tokenizer."""
    loaded = load(str(tiny), dtype="float32", device="cpu")
    assert (loaded.dtype, loaded.device, loaded.folder, loaded.name) == ("float32", "cpu", tiny, str(tiny))
    assert not loaded.model.training
    assert next(loaded.model.parameters()).dtype == torch.float32
    assert loaded.tokenizer("ab")["input_ids"] == [3, 4]


@pytest.mark.usefixtures("no_network")
def test_preset_loads_from_its_folder(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preset's name leads to the folder that fetch gives."""
    monkeypatch.setattr(loading, "fetch", lambda preset, progress: tiny)
    loaded = load("smollm2-135m", dtype="bfloat16")
    assert loaded.folder == tiny
    assert next(loaded.model.parameters()).dtype == torch.bfloat16


def test_loading_says_what_it_does(tiny: Path) -> None:
    """The progress callback hears of the load."""
    heard: list[str] = []
    load(str(tiny), progress=heard.append)
    assert heard == [f"loading {tiny}"]


def test_threads_are_set(tiny: Path) -> None:
    """``threads`` is torch's number of CPU threads afterwards."""
    before = torch.get_num_threads()
    try:
        load(str(tiny), threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"dtype": "int8"}, ContractError, r"'int8'; allowed: auto, bfloat16"),
        ({"device": "tpu"}, ContractError, r"'tpu'; allowed: auto, cpu, cuda"),
        ({"device": "cuda:99"}, CapabilityError, r"CUDA devices; use cpu"),
        ({"device": "cuda:x"}, CapabilityError, r"CUDA devices; use cpu"),
        ({"threads": 0}, ContractError, r"threads is 0; allowed"),
    ],
)
def test_bad_options_are_refused_before_loading(
    tiny: Path, changes: dict[str, Any], error: type[Exception], said: str
) -> None:
    """What is wrong with an option is said with what is allowed."""
    with pytest.raises(error, match=said):
        load(str(tiny), **changes)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["smollm3", "./nowhere/at/all", "a b/c", ""])
def test_unknown_name_lists_presets_and_the_other_ways(name: str) -> None:
    """The error names the presets, folders and hub ids, and no network is asked."""
    with pytest.raises(UnknownName, match=r"presets: smollm2-135m; .*folder.*owner/name"):
        load(name)


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    """A folder that holds no configuration is named."""
    with pytest.raises(ModelError, match=r"no config\.json"):
        load(str(tmp_path))


def _copy(folder: Path, to: Path) -> Path:
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_file_cut_short_is_one_line(tiny: Path, tmp_path: Path, file: str) -> None:
    """Half a file is a ModelError that says to get the model again."""
    folder = _copy(tiny, tmp_path)
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="get it again") as caught:
        load(str(folder))
    assert "\n" not in str(caught.value)


def test_missing_weights_are_refused_and_not_made_up(tiny: Path, tmp_path: Path) -> None:
    """A tensor that is not in the file would be random; the load is refused."""
    from safetensors.torch import load_file, save_file

    folder = _copy(tiny, tmp_path)
    tensors = load_file(str(folder / "model.safetensors"))
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 of .*model\.layers\.1\.mlp\.up_proj\.weight"):
        load(str(folder))


def test_hub_id_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An id that is not in the local cache, and a hub that does not answer."""
    monkeypatch.setattr(loading, "hub_reachable", lambda name: False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"nobody/nothing.*cannot be reached.*smollm2-135m") as caught:
        load("nobody/nothing")
    assert "\n" not in str(caught.value)


def test_hub_that_cannot_be_asked_is_asked_once() -> None:
    """A connection error means offline, after one request."""
    asked: list[str] = []

    def ask(name: str) -> None:
        asked.append(name)
        raise OSError("name or service not known")

    assert not hub.hub_reachable("a/b", ask)
    assert asked == ["a/b"]
    assert hub.hub_reachable("a/b", lambda name: None)


def test_encode_prompt_uses_the_template_unless_told_not_to(tiny: Path) -> None:
    """None and True wrap the text as a user's turn; False does not."""
    loaded = load(str(tiny))
    assert encode_prompt(loaded, "ab") == (1, 3, 4, 2)
    assert encode_prompt(loaded, "ab", True) == (1, 3, 4, 2)
    assert encode_prompt(loaded, "ab", False) == (3, 4)


def test_encode_prompt_without_template(tiny: Path) -> None:
    """Without a template None is plain text and True is refused."""
    loaded = load(str(tiny))
    loaded.tokenizer.chat_template = None
    assert encode_prompt(loaded, "ab") == (3, 4)
    with pytest.raises(CapabilityError, match="--no-chat"):
        encode_prompt(loaded, "ab", True)


def test_encode_prompt_refuses_an_empty_text(tiny: Path) -> None:
    """There is nothing to continue."""
    with pytest.raises(ContractError, match="empty"):
        encode_prompt(load(str(tiny)), "", False)


@pytest.mark.parametrize(
    ("features", "platform", "expected"),
    [
        ({"avx512_bf16": True}, "linux", "bfloat16"),
        ({"amx_bf16": True}, "win32", "bfloat16"),
        ({"bf16": True}, "linux", "bfloat16"),
        ({"bf16": True}, "darwin", "float32"),
        ({"avx2": True, "avx512_f": True}, "linux", "float32"),
        ({}, "linux", "float32"),
    ],
)
def test_auto_dtype_on_cpu_follows_its_instructions(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, bool], platform: str, expected: str
) -> None:
    """bfloat16 only where the processor computes in it."""
    monkeypatch.setattr(dtypes, "cpu_features", lambda: features)
    monkeypatch.setattr(sys, "platform", platform)
    assert dtypes.choose_dtype("auto", "cpu") == expected
    assert dtypes.choose_dtype("float16", "cpu") == "float16"


def test_older_torch_is_asked_for_avx512_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table of features the one old question is asked."""
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert dtypes.cpu_features() == {"avx512_bf16": True}


def test_rollback_survey_says_how_each_kind_of_cache_goes_back() -> None:
    """Attention is cut, recurrent states are copied, and a family that reads pieces of a text wrongly is refused."""
    from flashspec.hf.rollback import survey

    state = torch.get_rng_state()
    found = {item.family: item for item in survey()}
    assert found["llama"].can_roll_back
    assert found["llama"].layers == ("DynamicLayer",)
    assert found["mistral"].can_roll_back
    assert "LinearAttentionLayer" in found["qwen3_next"].layers
    for family in ("qwen3_next", "mamba2"):
        assert found[family].can_roll_back
        assert "read two of three tokens again" in found[family].reason
    assert not found["mamba"].can_roll_back
    assert "otherwise than one by one" in found["mamba"].reason
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.smollm2
def test_real_preset_loads_and_its_tokenizer_splits_digits() -> None:
    """The conversion keeps the chat template and the published rule for digits."""
    loaded = load("smollm2-135m")
    assert isinstance(loaded, Loaded)
    ids = loaded.tokenizer("a  10")["input_ids"]
    assert [loaded.tokenizer.decode([i]) for i in ids] == ["a", "  ", "1", "0"]
    assert loaded.model.generation_config.eos_token_id == 2
    assert loaded.tokenizer.decode(list(encode_prompt(loaded, "Hi"))).endswith("<|im_start|>assistant\n")


@pytest.mark.smollm2
def test_second_start_leaves_the_converter_alone() -> None:
    """Loading the finished preset in a fresh process imports no gguf."""
    code = "import sys\nfrom flashspec.hf.loading import load\nload('smollm2-135m')\nassert 'gguf' not in sys.modules\n"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ, timeout=120)


def test_loaded_is_frozen(tiny: Path) -> None:
    """What was loaded cannot be swapped behind the engine's back."""
    loaded = load(str(tiny))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        loaded.name = "other"  # type: ignore[misc]  # the point of the test
