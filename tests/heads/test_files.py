"""Folders of drafts: ours and the published layouts are read, whatever does not fit is refused with what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

torch = pytest.importorskip("torch", reason="the hf extra is not installed")
transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

from safetensors.torch import save_file  # noqa: E402

from flashspec import registry  # noqa: E402
from flashspec.contract import Sampling, Stream  # noqa: E402
from flashspec.errors import CapabilityError, ContractError, ModelError  # noqa: E402
from flashspec.hf.heads.files import pack, save, unpack, write_whole  # noqa: E402
from flashspec.hf.heads.following import Fed  # noqa: E402
from flashspec.hf.heads.identity import fingerprint, sizes  # noqa: E402
from flashspec.hf.heads.kinds import Ground, new_module, trained  # noqa: E402
from flashspec.hf.heads.loading import head, load  # noqa: E402
from flashspec.hf.lm import HFCausalLM  # noqa: E402
from tests.heads import tiny  # noqa: E402

VOCAB, H, DEPTH = 40, 16, 6
BACKEND = registry.get_backend("torch")
Edit = Callable[[dict[str, Any], dict[str, Any]], None]


def ground(model: Any) -> Ground:
    """A target to stand on."""
    return Ground(model, HFCausalLM.of(model, BACKEND), BACKEND)


def qwen2(vocab: int = VOCAB) -> Any:
    """A random Qwen2 of the tiny sizes."""
    torch.manual_seed(3)
    shape = {k: v for k, v in tiny.SHAPE.items() if k != "head_dim"}
    config = transformers.Qwen2Config(vocab_size=vocab, num_hidden_layers=DEPTH, initializer_range=0.5, **shape)
    return transformers.Qwen2ForCausalLM(config).eval()


def drafted(model: Any, folder: Path) -> tuple[int, ...]:
    """What the draft in a folder proposes greedily after a text."""
    made: Any = load(ground(model), folder, "it", "tiny")
    fed = Fed.of(made, HFCausalLM.of(model, BACKEND))
    text = [1, 2, 3, 4, 5, 6]
    draft, _ = fed.propose(fed.start(text), 4, Sampling.of(1, temperature=0), Stream.of([0], [6]))
    return draft.tokens


def decoder(prefix: str, width: int, bias: bool = False) -> dict[str, Any]:
    """Weights of one published decoder layer."""
    shapes = {
        "self_attn.q_proj.weight": (16, width), "self_attn.k_proj.weight": (8, width),
        "self_attn.v_proj.weight": (8, width), "self_attn.o_proj.weight": (H, 16),
        "mlp.gate_proj.weight": (24, H), "mlp.up_proj.weight": (24, H), "mlp.down_proj.weight": (H, 24),
        "post_attention_layernorm.weight": (H,),
        **({f"self_attn.{p}_proj.bias": (n,) for p, n in (("q", 16), ("k", 8), ("v", 8))} if bias else {}),
    }  # fmt: skip
    return {prefix + name: 0.5 * torch.randn(shape) for name, shape in shapes.items()}


CONFIG = {**tiny.SHAPE, "vocab_size": VOCAB, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "num_hidden_layers": 1}


def eagle3(folder: Path, **config: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """``config.json`` and ``pytorch_model.bin`` as the EAGLE-3 repositories have them."""
    torch.manual_seed(0)
    known = torch.tensor([1, 4, 9, 16, 25, 36, 39])
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[known] = True
    norms = ("midlayer.hidden_norm", "midlayer.input_layernorm", "norm")
    weights = {
        **decoder("midlayer.", 2 * H), **{f"{n}.weight": torch.ones(H) for n in norms},
        "fc.weight": torch.randn(H, 3 * H), "lm_head.weight": torch.randn(len(known), H),
        "d2t": known - torch.arange(len(known)), "t2d": t2d,
    }  # fmt: skip
    told = {**CONFIG, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(known), **config}
    return told, weights


def eagle1(folder: Path, bias: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """As the first EAGLE repositories have them; with biases as for Qwen2."""
    torch.manual_seed(0)
    weights = {
        **decoder("layers.0.", H, bias), "embed_tokens.weight": torch.randn(VOCAB, H),
        "fc.weight": torch.randn(H, 2 * H), "fc.bias": torch.randn(H),
    }  # fmt: skip
    return {**CONFIG, "architectures": ["LlamaForCausalLM"], "bias": True}, weights


def medusa(own: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Names count heads and blocks; the linear map behind the blocks is the head's own, if it has one."""
    torch.manual_seed(0)
    weights: dict[str, Any] = {}
    for i in range(3):
        weights |= {f"{i}.0.linear.weight": torch.randn(H, H), f"{i}.0.linear.bias": torch.randn(H)}
        weights |= {f"{i}.1.weight": torch.randn(VOCAB, H)} if own else {}
    return {"medusa_num_heads": 3, "medusa_num_layers": 1, "base_model_name_or_path": "own/tiny"}, weights


def publish(folder: Path, config: dict[str, Any], weights: dict[str, Any], name: str) -> Path:
    """Write a published folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if name.endswith(".safetensors"):
        save_file(weights, folder / name)
    else:
        torch.save(weights, folder / name)
    return folder


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.safetensors"])
def test_published_eagle3_is_read(tmp_path: Path, family: str, file: str) -> None:
    """Drafts are ids of the map, whichever family the target is of."""
    model = tiny.target(VOCAB).float() if family == "llama" else qwen2()
    config, weights = eagle3(tmp_path, eagle_aux_hidden_state_layer_ids=[1, 2, 5])
    tokens = drafted(model, publish(tmp_path / "e3", config, weights, file))
    known = torch.arange(7) + weights["d2t"]
    assert len(tokens) == 4
    assert set(tokens) <= set(known.tolist())


@pytest.mark.parametrize("bias", [False, True])
def test_published_eagle_is_read(tmp_path: Path, bias: bool) -> None:
    """Without a map, by the target's head; with the biases of Qwen2."""
    model = qwen2() if bias else tiny.target(VOCAB).float()
    tokens = drafted(model, publish(tmp_path / "e1", *eagle1(tmp_path, bias), "pytorch_model.bin"))
    assert len(tokens) == 4
    made: Any = load(ground(model), tmp_path / "e1", "it", "tiny")
    assert made.taps == (DEPTH,)
    assert made.lm_head.shape == (VOCAB, H)


@pytest.mark.parametrize("own", [True, False])
def test_published_medusa_is_read(tmp_path: Path, own: bool) -> None:
    """Each token is the argmax of ``W_i (h + SiLU(A_i h + b_i))`` at the last read position."""
    model = tiny.target(VOCAB).float()
    config, weights = medusa(own)
    tokens = drafted(model, publish(tmp_path / "m", config, weights, "medusa_lm_head.pt"))
    with torch.inference_mode():
        h = model.model(torch.tensor([[1, 2, 3, 4, 5]])).last_hidden_state[0, -1]
        for i, token in enumerate(tokens):
            x = h + torch.nn.functional.silu(weights[f"{i}.0.linear.weight"] @ h + weights[f"{i}.0.linear.bias"])
            rows = weights[f"{i}.1.weight"] if own else model.lm_head.weight
            assert token == int((rows @ x).argmax())
    assert len(tokens) == 3


def _drop(name: str) -> Edit:
    return lambda config, weights: weights.pop(name)


def _shift(config: dict[str, Any], weights: dict[str, Any]) -> None:
    weights["d2t"] = weights["d2t"] + VOCAB


def _doubled(config: dict[str, Any], weights: dict[str, Any]) -> None:
    weights["d2t"] = weights["d2t"] * 0 - torch.arange(7)


def _set(**fields: Any) -> Edit:
    return lambda config, weights: config.update(fields)


@pytest.mark.parametrize(
    ("edit", "error", "words"),
    [
        (_drop("fc.weight"), ModelError, r"lacks the weight fc\.weight.*get it again"),
        (_drop("lm_head.weight"), ModelError, "lacks 'lm_head.weight'"),
        (_shift, ModelError, "another vocabulary, or damaged"),
        (_doubled, ModelError, "one to one"),
        (_set(vocab_size=41), CapabilityError, "vocab_size 41; tiny has 40"),
        (_set(hidden_size=32, head_dim=8), CapabilityError, "hidden_size 32; tiny has 16"),
        (_set(intermediate_size=32), ModelError, "has shape"),
        (_set(eagle_aux_hidden_state_layer_ids=[2, 3, 9]), ModelError, "a target of 6 layers"),
        (lambda c, w: c.pop("num_attention_heads"), ModelError, "lacks 'num_attention_heads'"),
        (lambda c, w: w.update(strange=torch.ones(1)), ModelError, "the weight strange"),
    ],
)
def test_published_files_that_do_not_fit_are_refused(
    tmp_path: Path, edit: Edit, error: type[Exception], words: str
) -> None:
    """What is wrong is named."""
    config, weights = eagle3(tmp_path, eagle_aux_hidden_state_layer_ids=[1, 2, 5])
    edit(config, weights)
    publish(tmp_path / "bad", config, weights, "model.safetensors")
    with pytest.raises(error, match=words):
        load(ground(tiny.target(VOCAB)), tmp_path / "bad", "it", "tiny")


def own_folder(path: Path, model: Any, stored: str = "float32") -> dict[str, Any]:
    """A draft of ours with random weights; returns its weights."""
    config = tiny.config_of("eagle", VOCAB)
    torch.manual_seed(1)
    module = new_module("eagle", config, model)
    config["target"] = {"name": "tiny", "sha256": fingerprint(model), **sizes(model)}
    save(path, config, trained(module), stored)
    return trained(module)


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "int8"])
def test_a_draft_is_read_as_it_was_stored(tmp_path: Path, stored: str) -> None:
    """bfloat16 keeps 8 bits, int8 127 steps of the largest value of a row."""
    model = tiny.target(VOCAB).float()
    weights = own_folder(tmp_path / "own", model, stored)
    made: Any = load(ground(model), tmp_path / "own", "it", "tiny")
    slack = {"float32": 0.0, "bfloat16": 2.0**-8, "int8": 1 / 127}[stored]
    for name, weight in trained(made.head).items():
        assert (weight - weights[name]).abs().max() <= slack * weights[name].abs().max() + 1e-12
    assert len(drafted(model, tmp_path / "own")) == 4


def test_a_draft_of_another_target_is_refused(tmp_path: Path) -> None:
    """One changed layer is another target; the number type is not."""
    model = tiny.target(VOCAB).float()
    own_folder(tmp_path / "own", model)
    assert fingerprint(model) == fingerprint(tiny.target(VOCAB))
    other = tiny.target(VOCAB, seed=9).float()
    with pytest.raises(CapabilityError, match=r"trained for other weights.*train-draft --target"):
        load(ground(other), tmp_path / "own", "it", "tiny")
    with pytest.raises(CapabilityError, match="vocab_size 40; tiny has 39"):
        load(ground(tiny.target(39)), tmp_path / "own", "it", "tiny")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_files_that_are_cut_short_are_refused(tmp_path: Path, file: str, share: float) -> None:
    """At any place, with the advice to get it again."""
    model = tiny.target(VOCAB)
    own_folder(tmp_path / "own", model)
    path = tmp_path / "own" / file
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ModelError, match="again"):
        load(ground(model), tmp_path / "own", "it", "tiny")


def test_a_published_file_with_code_in_it_is_not_run(tmp_path: Path) -> None:
    """Pickles are read as tensors only."""
    config, weights = eagle3(tmp_path)
    publish(tmp_path / "bad", config, {**weights, "extra": tiny.target}, "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"cut short or damaged|more than tensors"):
        load(ground(tiny.target(VOCAB)), tmp_path / "bad", "it", "tiny")


def test_writing_a_file_leaves_the_old_one_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk costs nothing that was there, and nothing half-written is left."""
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_int8_is_refused_by_no_other_name() -> None:
    """Ways to store are listed, and integers stay what they are."""
    with pytest.raises(ContractError, match="allowed: bfloat16, int8, float32"):
        pack({}, "int4")
    ids = torch.arange(5, dtype=torch.int32)
    assert torch.equal(unpack(pack({"d2t": ids}, "int8"))["d2t"], ids)


def test_a_head_needs_a_folder() -> None:
    """The factory says what belongs after the colon."""
    with pytest.raises(ContractError, match="needs a folder"):
        head(attrs.make_class("Nothing", [])(), "")
