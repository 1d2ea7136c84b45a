"""What a benchmark report says about where and when it was made."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import flashspec

PACKAGES = ("torch", "triton", "transformers", "tokenizers", "numpy")


def header(command: str) -> dict[str, Any]:
    """The command, the time in UTC, the hardware and the versions of what ran."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"command": command, "date": now, "hardware": hardware(), "versions": versions()}


def hardware() -> dict[str, Any]:
    """CPU model, usable cores, memory in GiB, GPUs, and how busy the machine was before the run."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gib": memory_gib(),
        "gpus": gpus(),
        "load_1min": round(os.getloadavg()[0], 2) if sys.platform != "win32" else None,
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str | None]:
    """Versions of Python, FlashSpec and the packages that matter; None where one is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "flashspec": flashspec.__version__}
    return found | {name: _version(name) for name in PACKAGES}


def cpu_model() -> str | None:
    """The processor's name, or None where the system does not tell."""
    system = platform.system()
    if system == "Linux":
        return model_in_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    if system == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or None
    return platform.processor() or None


def model_in_cpuinfo(text: str) -> str | None:
    """The model name in the text of Linux's ``/proc/cpuinfo``, with the numbers that tell models apart."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or fields.get("Model") or fields.get("cpu")
    if not name:
        return platform.processor() or None
    numbers = [f"{key} {fields[key]}" for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def memory_gib() -> float | None:
    """Physical memory, or None where the system does not tell."""
    if sys.platform == "win32":
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def gpus() -> list[str]:
    """Names of the CUDA devices; empty without torch."""
    try:
        import torch
    except ImportError:
        return []
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.cuda.get_device_name(i) for i in range(count)]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
