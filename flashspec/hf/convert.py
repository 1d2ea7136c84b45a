"""GGUF weights to a safetensors folder that loads fast and needs no ``gguf`` afterwards."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flashspec.errors import ModelError

RECIPE = 1
"""Number of the conversion below; raised when its output changes, so that old folders are made anew."""

Convert = Callable[[Path, Path], None]
"""Reads a GGUF file and writes a new model folder."""


def library(name: str) -> Any:
    """A module of the ``hf`` extra, untyped.

    Raises:
        ModelError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"models need the hf extra ({error}); install flashspec[hf]") from error


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Switch transformers' progress bars and chatter off inside the block."""
    logging = library("transformers.utils.logging")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def convert(gguf: Path, out: Path) -> None:
    """Dequantise in float32, round once to bfloat16, save with tokenizer and chat template.

    Raises:
        ModelError: a package of the ``hf`` extra is missing, or the file cannot be read.
        OSError: the disk is full or cannot be written.
    """
    torch, transformers = library("torch"), library("transformers")
    for name in ("gguf", "accelerate"):  # transformers reads GGUF with these
        library(name)
    place: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    with quiet_transformers():
        try:
            # The GGUF reader draws its progress bar past transformers' own switch.
            with contextlib.redirect_stderr(io.StringIO()):
                tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), **place)
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    str(gguf.parent), dtype=torch.float32, **place
                )
        except (ValueError, KeyError, RuntimeError) as error:
            raise ModelError(f"{gguf.name} cannot be read: {first_line(error)}") from error
        _split_digits(tokenizer)
        _forget_quantisation(model)
        with _disk_errors():
            model.to(torch.bfloat16).save_pretrained(str(out))
            tokenizer.save_pretrained(str(out))


def _split_digits(tokenizer: Any) -> None:
    """Split digits before anything else, as the published tokenizer does.

    The GGUF file names the rule (``tokenizer.ggml.pre = smollm``); transformers does not read it,
    and two spaces before a number would become other tokens.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
    )


def _forget_quantisation(model: Any) -> None:
    """Drop the notes that make ``save_pretrained`` refuse a model that was read from GGUF."""
    del model.config.quantization_config
    model.hf_quantizer = None
    for name in ("is_quantized", "quantization_method"):
        vars(model).pop(name, None)
    model.config.architectures = [type(model).__name__]


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Let a full disk be an OSError, whichever library met it."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if "os error 28" in str(error) or "No space left" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise ModelError(f"the converted model cannot be saved: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
