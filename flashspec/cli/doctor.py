"""``flashspec doctor``: what is here, and what can be used."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from flashspec.cli import models, output, warming
from flashspec.cli.faults import one_line
from flashspec.cli.wiring import Wiring
from flashspec.errors import FlashSpecError
from flashspec.registry import PREFERENCE, Finding

PACKAGES = (
    "flashspec", "attrs", "numpy", "torch", "triton", "transformers", "tokenizers", "safetensors", "gguf",
    "accelerate", "huggingface_hub", "cyclopts", "rich", "matplotlib", "scipy", "hypothesis", "pytest",
)  # fmt: skip


def doctor(
    *,
    warm: int | None = None,
    target: str | None = None,
    backend: str | None = None,
    dtype: str | None = None,
    json: str | None = None,
) -> Callable[[Wiring], int]:
    """Say which versions, devices, backends, presets and caches are here, and why something is not usable.

    Parameters
    ----------
    warm
        Compile the GPU kernels for a vocabulary of so many tokens, so that no request waits for it.
    target
        The same for the vocabulary and dtype of a model: a preset, a folder or a hub id.
    backend
        Backend to warm (default: every usable one that can be).
    dtype
        Logits to warm for: bfloat16 (the default; with --target the model's), float16 or float32.
    json
        Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one.
    """

    def job(wiring: Wiring) -> int:
        order = warming.Order(warm, target, backend, dtype)
        with output.progress(output.watched(sys.stderr, json)) as say:
            report = examine(wiring, say)
            report["warm"] = warming.warm(wiring, order, say) if order.given else []
        if json is not None:
            output.deliver(report, json)
        if json != output.STDOUT:
            output.show(*_tables(report), stream=sys.stdout)
        return int(any(row["seconds"] is None for row in report["warm"]))

    return job


def examine(wiring: Wiring, say: Callable[[str], None]) -> dict[str, Any]:
    """The report. A part that cannot be had is null, with the reason under ``problems``."""
    problems: dict[str, str] = {}

    def attempt(part: str, look: Callable[[], Any]) -> Any:
        say(f"looking at {part}")
        try:
            return look()
        except (FlashSpecError, ImportError, OSError, RuntimeError) as error:
            problems[part] = one_line(error)
            return None

    devices = attempt("devices", _devices)
    backends = attempt("backends", wiring.backends)
    report = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": devices,
        "backends": backends,
        "best_backend": _best(backends or [], devices),
        "cache": attempt("cache", _cache),
        "presets": attempt("presets", lambda: models.listing()["presets"]),
        "caches": attempt("caches", wiring.caches),
    }
    return {**report, "problems": problems}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[dict[str, Any]]:
    """CPU first, then each CUDA device, with the dtype that ``--dtype auto`` means there."""
    torch: Any = importlib.import_module("torch")
    from flashspec.hf.dtype import choose_dtype

    cpu = {"device": "cpu", "name": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    found = [{**cpu, "threads": torch.get_num_threads(), "dtype": choose_dtype("auto", "cpu")}]
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            name = torch.cuda.get_device_name(number)
            found.append({"device": f"cuda:{number}", "name": name, "dtype": choose_dtype("auto", "cuda")})
    return found


def _best(backends: list[Finding], devices: list[dict[str, Any]] | None) -> dict[str, str | None]:
    """What is taken for each type of device when no backend is named."""
    kinds = sorted({d["device"].partition(":")[0] for d in devices or []} | {"cpu"})
    order = {name: place for place, name in enumerate(PREFERENCE)}
    ranked = sorted(backends, key=lambda f: (order.get(f.name, len(order)), f.name))
    return {kind: next((f.name for f in ranked if f.usable and kind in f.devices), None) for kind in kinds}


def _cache() -> dict[str, Any]:
    """The cache folder: whether it can be written, and the free space of its disk in bytes."""
    from flashspec.hf.presets import cache_folder

    folder = cache_folder()
    stands = next(p for p in (folder, *folder.parents) if p.exists())
    writable = stands.is_dir() and os.access(stands, os.W_OK | os.X_OK)
    return {
        "folder": str(folder),
        "from": "FLASHSPEC_CACHE" if os.environ.get("FLASHSPEC_CACHE") else "the platform's cache folder",
        "exists": folder.is_dir(),
        "writable": writable,
        "free_bytes": _free(stands),
    }


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _tables(report: dict[str, Any]) -> list[Any]:
    """The report for people."""
    packages = ", ".join(f"{name} {version or '-'}" for name, version in report["packages"].items())
    things: list[Any] = [f"Python {report['python']}, {report['platform']}", packages, ""]
    devices = [(d["device"], d["name"], str(d.get("threads", "")), d["dtype"]) for d in report["devices"] or []]
    things.append(output.table("Devices", ("device", "name", "threads", "dtype auto"), devices))
    backends = [(f.name, "yes" if f.usable else "no", ", ".join(f.devices), f.reason) for f in report["backends"] or []]
    things.append(output.table("Backends", ("backend", "usable", "devices", "reason"), backends))
    best = ", ".join(f"{kind}: {name or 'none'}" for kind, name in report["best_backend"].items())
    things += [f"taken unasked: {best}", ""]
    caches = [
        (c.family, "yes" if c.can_roll_back else "no", ", ".join(c.layers), c.reason) for c in report["caches"] or []
    ]
    things.append(output.table("Caches that roll back", ("family", "can", "layers", "reason"), caches))
    things += [f"{p['name']}: {'present' if p['present'] else 'not fetched'}" for p in report["presets"] or []]
    if cache := report["cache"]:
        state = "writable" if cache["writable"] else "NOT writable"
        things.append(f"cache folder: {cache['folder']} ({state}, {cache['free_bytes'] / 1e9:.1f} GB free)")
    things += [warming.line(row) for row in report["warm"]]
    return [*things, *(f"{part}: {reason}" for part, reason in report["problems"].items())]
