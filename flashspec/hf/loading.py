"""Loading a causal model with its tokenizer: a preset, a folder or a hub id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs

from flashspec.errors import CapabilityError, ContractError, ModelError, UnknownName
from flashspec.hf.convert import first_line, library, quiet_transformers
from flashspec.hf.dtype import choose_dtype
from flashspec.hf.hub import hub_reachable
from flashspec.hf.presets import PRESETS, Progress, fetch

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""``owner/name``. A name without an owner is a preset or nothing."""

DEVICES = ("auto", "cpu", "cuda")


MAX_THREADS = 1024
"""More than any one machine has; far more than that ends the process inside torch."""


@attrs.frozen(eq=False)
class Loaded:
    """A model ready to run, with what reads and writes its text."""

    model: Any
    """A transformers causal language model in evaluation mode on ``device``."""
    tokenizer: Any
    name: str
    """As it was asked for."""
    folder: Path | None
    """Where the weights lie; None for a hub id, whose files are in the hub's own cache."""
    dtype: str
    """``bfloat16``, ``float16`` or ``float32``."""
    device: str
    """The type of the model's device, ``cpu`` or ``cuda``."""

    @classmethod
    def of(cls, model: Any, tokenizer: Any) -> Loaded:
        """A model that somebody has loaded already.

        Raises:
            ContractError: it is in training mode.
        """
        if model.training:
            raise ContractError("the model is in training mode; allowed: evaluation mode; call model.eval()")
        name = model.config._name_or_path or type(model).__name__
        return cls(model, tokenizer, name, None, str(model.dtype).removeprefix("torch."), str(model.device.type))


def load(
    name: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    progress: Progress = lambda stage: None,
) -> Loaded:
    """Load the model of a preset name, a local folder or a hub id ``owner/name``.

    A preset or a folder touches no network, except a preset's first download. ``dtype`` ``auto`` is
    what :func:`flashspec.hf.dtype.choose_dtype` says; ``device`` ``auto`` is CUDA where there is
    one, else the CPU. ``threads`` sets torch's CPU threads for the whole process; None leaves them.

    Raises:
        UnknownName: neither a preset, nor a folder, nor of a hub id's form.
        ContractError: an unknown dtype or device, or fewer than one thread.
        CapabilityError: a device that this machine lacks.
        ModelError: weights that cannot be had, or are damaged; or the ``hf`` extra is missing.
    """
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise ContractError(f"threads is {threads}; allowed: an integer from 1 to {MAX_THREADS}")
    torch, transformers = library("torch"), library("transformers")
    place = _choose_device(device)
    kind = choose_dtype(dtype, place)
    folder = find(name, progress)
    if threads is not None:
        torch.set_num_threads(threads)
    progress(f"loading {name}")
    options = {"local_files_only": folder is not None or not hub_reachable(name)}
    source = name if folder is None else str(folder)
    with quiet_transformers():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
            model, report = transformers.AutoModelForCausalLM.from_pretrained(
                source, dtype=getattr(torch, kind), output_loading_info=True, **options
            )
            model.to(place)
        except Exception as error:  # transformers, safetensors and the hub client share no base class
            raise _cannot_load(name, folder, options["local_files_only"], error) from error
    _check_weights(name, report)
    return Loaded(model, tokenizer, name, folder, kind, str(model.device.type))


def find(name: str, progress: Progress = lambda stage: None) -> Path | None:
    """The folder of a preset (fetched if need be) or of a path; None if the name is a hub id.

    Raises:
        UnknownName: neither of the three.
        ModelError: a preset that cannot be fetched, or a path without a model.
    """
    if name in PRESETS:
        return fetch(PRESETS[name], progress)
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise ModelError(f"{name} cannot be found ({error}); give the whole path") from error
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"the folder {name} has no config.json, so it holds no model; name another folder")
        return path
    if HUB_ID.fullmatch(name):
        return None
    presets = ", ".join(sorted(PRESETS))
    raise UnknownName(
        f"unknown model {name!r}; presets: {presets}; "
        "the path of a folder with a model, or a hub id of the form owner/name, works as well"
    )


def encode_prompt(loaded: Loaded, text: str, chat: bool | None = None) -> tuple[int, ...]:
    """Token ids of a prompt. ``chat`` wraps it as a user's turn; None does so if the model has a template.

    Raises:
        ContractError: an empty text, or one without tokens.
        CapabilityError: ``chat`` for a tokenizer without a chat template.
    """
    if not text:
        raise ContractError("the prompt is empty; give at least one character")
    tokenizer = loaded.tokenizer
    has_template = tokenizer.chat_template is not None
    if chat and not has_template:
        raise CapabilityError(f"{loaded.name} has no chat template; use --no-chat (chat=False)")
    if has_template if chat is None else chat:
        turn = [{"role": "user", "content": text}]
        whole = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    else:
        ids = tokenizer(text)["input_ids"]
    if not ids:
        raise ContractError(f"the prompt {text!r} has no tokens in {loaded.name}; give other text")
    return tuple(int(i) for i in ids)


def _choose_device(device: str) -> str:
    import torch

    kind = device.partition(":")[0]
    if kind not in DEVICES or (kind != "cuda" and device != kind):
        raise ContractError(f"device is {device!r}; allowed: auto, cpu, cuda, cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "auto":
        return "cuda" if count else "cpu"
    if kind == "cuda":
        number = device.partition(":")[2] or "0"
        if not number.isdecimal() or int(number) >= count:
            raise CapabilityError(f"device is {device!r}, but this machine has {count} CUDA devices; use cpu")
    return device


def _check_weights(name: str, report: Any) -> None:
    """Refuse a model some of whose weights were not in its files (transformers would make them up)."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"{name} lacks {len(missing)} of its model's weights, {missing[0]} among them; "
            "it is cut short or of another architecture: get it again"
        )


def _cannot_load(name: str, folder: Path | None, offline: bool, error: Exception) -> ModelError:
    if folder is not None:
        reason = first_line(error)
        again = f"delete {folder} and run again" if name in PRESETS else "get it again"
        return ModelError(f"the model in {folder} cannot be loaded ({reason}); if it is damaged, {again}")
    others = f"or use a folder or a preset ({', '.join(sorted(PRESETS))})"
    if offline:
        return ModelError(
            f"the hub id {name} is not in the hub's local cache, and the hub cannot be reached; "
            f"check the network (and HF_HUB_OFFLINE), {others}"
        )
    return ModelError(f"the hub id {name} cannot be loaded ({first_line(error)}); check the name, {others}")
