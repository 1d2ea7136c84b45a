"""``flashspec models``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flashspec.cli import output
from flashspec.cli.wiring import Wiring

if TYPE_CHECKING:
    from flashspec.hf.presets import Preset


def show(*, json: str | None = None) -> Callable[[Wiring], int]:
    """List the presets: where weights come from, size, licence, hash, folder, and whether they are there.

    Parameters
    ----------
    json
        Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one.
    """

    def job(wiring: Wiring) -> int:
        report = listing()
        if json is not None:
            output.deliver(report, json)
        if json != output.STDOUT:
            output.show(*_tables(report), stream=sys.stdout)
        return 0

    return job


def get(name: str, /, *, json: str | None = None) -> Callable[[Wiring], int]:
    """Download and convert a preset, unless it is there; prints its folder.

    Parameters
    ----------
    name
        The preset.
    json
        Report as JSON to FILE (--json NAME.json or --json=FILE), or to standard output without one.
    """

    def job(wiring: Wiring) -> int:
        from flashspec.hf.presets import is_present, preset

        chosen = preset(name)
        there = is_present(chosen)
        with output.progress(output.watched(sys.stderr, json)) as say:
            folder = wiring.fetch(chosen, say)
        if json is not None:
            output.deliver({"name": name, "folder": str(folder), "fetched": not there}, json)
        if json != output.STDOUT:
            sys.stdout.write(f"{folder}\n")
        return 0

    return job


def listing() -> dict[str, Any]:
    """The report of ``flashspec models list``."""
    from flashspec.hf.presets import PRESETS, cache_folder

    return {"cache": str(cache_folder()), "presets": [describe(preset) for preset in PRESETS.values()]}


def describe(preset: Preset) -> dict[str, Any]:
    """One preset for people and programs; sizes in bytes."""
    from flashspec.hf.presets import is_present, model_folder

    return {
        "name": preset.name,
        "source": preset.source,
        "package": f"{preset.package}=={preset.version}",
        "licence": preset.licence,
        "download_bytes": preset.wheel_bytes,
        "folder_bytes": preset.folder_bytes,
        "wheel_sha256": preset.wheel_sha256,
        "weights_sha256": preset.gguf_sha256,
        "folder": str(model_folder(preset)),
        "present": is_present(preset),
    }


def _tables(report: dict[str, Any]) -> list[Any]:
    rows = [
        (
            p["name"],
            "yes" if p["present"] else "no",
            f"{p['download_bytes'] / 1e6:.0f} MB",
            f"{p['folder_bytes'] / 1e6:.0f} MB",
            p["licence"],
            p["source"],
        )
        for p in report["presets"]
    ]
    columns = ("preset", "present", "download", "on disk", "licence", "source")
    hashes = [f"{p['name']}: wheel SHA-256 {p['wheel_sha256']}" for p in report["presets"]]
    return [output.table("Presets", columns, rows), *hashes, f"cache folder: {report['cache']}"]
