"""The command as a process: what only a real one shows (signals, pipes, terminals, imports)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cyclopts", reason="the packages of the command line are not installed")

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT, ROOT / "spec", ROOT / "backends", ROOT / "conformance")
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="signals and pseudo-terminals of POSIX")

FAKE = textwrap.dedent(
    """
    import sys, time
    from tests.cli.fake_engine import Engine
    from flashspec.cli import main
    class Slow(list):
        def __iter__(self):
            for text in super().__iter__():
                yield text
                time.sleep({pause})
    engine = Engine(texts=Slow({texts!r}))
    sys.exit(main(sys.argv[1:], engine.wiring()))
    """
)


def environ(**changes: str) -> dict[str, str]:
    """This process's environment with the checkout on the path and UTF-8 output."""
    path = os.pathsep.join(str(folder) for folder in FOLDERS)
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "PYTHONUNBUFFERED")
    }
    return {**kept, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", **changes}


def heed_interrupts() -> None:
    """Undo what a shell does to background jobs: they ignore SIGINT, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*words: str, texts: list[str], pause: float = 0.0, **options: Any) -> subprocess.Popen[bytes]:
    """The command line on a fake engine in a process of its own."""
    script = FAKE.format(texts=texts, pause=pause)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    options.setdefault("stdin", subprocess.DEVNULL)
    if sys.platform != "win32":
        options.setdefault("preexec_fn", heed_interrupts)
    return subprocess.Popen([sys.executable, "-c", script, *words], env=options.pop("env", environ()), **options)


@POSIX
def test_interrupt_signal_keeps_the_text() -> None:
    """SIGINT in the middle of the stream: 130, the text so far, a newline, no traceback."""
    process = start("generate", "Hi", texts=["one", " two"] + [""] * 50, pause=0.2)
    assert process.stdout is not None
    assert process.stdout.read(7) == b"one two"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"\n", b"")


@POSIX
def test_closed_pipe_is_quiet() -> None:
    """A reader that has enough ends the command without a message, at exit too."""
    process = start("generate", "Hi", texts=["x" * 100] * 1000)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_under_standard_output_is_one_line() -> None:
    """Output that cannot be written ends with 1 and one line."""
    with Path("/dev/full").open("wb") as full:
        process = start("generate", "Hi", texts=["x"], stdout=full)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err.count(b"\n")) == (1, 1)
    assert err.startswith(b"error: output cannot be written: ")


@POSIX
def test_a_closed_standard_output_is_one_line() -> None:
    """Started without a standard output, the command says so instead of failing at its end."""
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$0" -P -m flashspec models >&-', sys.executable], env=environ(), stderr=subprocess.PIPE
    )
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (
        1, b"error: standard output is closed; send it to a file or to /dev/null\n",
    )  # fmt: skip


@POSIX
@pytest.mark.parametrize("no_color", [False, True])
def test_terminal_shows_the_table_on_standard_error(no_color: bool) -> None:
    """On a terminal a table follows on standard error; NO_COLOR takes the colours away, not the table."""
    import pty

    ours, theirs = pty.openpty()
    env = environ(NO_COLOR="1", TERM="xterm") if no_color else environ(TERM="xterm")
    process = start("generate", "Hi", texts=["x"], stderr=theirs, env=env)
    os.close(theirs)
    shown = _read_all(ours)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, b"x\n")
    for part in ("8 tokens in 2.00 s: 4.0 tokens/s", "mean emitted length 1.60", "ngram", "0.50", "2.5 tokens/s"):
        assert part in shown
    assert ("\x1b[3" in shown) <= (not no_color)


def _read_all(descriptor: int) -> str:
    """Everything until the other side of the terminal is closed."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 4096)
        except OSError:
            piece = b""
        if not piece:
            os.close(descriptor)
            return b"".join(pieces).decode("utf-8")
        pieces.append(piece)


@POSIX
def test_json_on_standard_output_silences_the_terminal() -> None:
    """With JSON on standard output nothing is shown even on a terminal."""
    import pty

    ours, theirs = pty.openpty()
    process = start("generate", "Hi", "--json", texts=["x"], stderr=theirs, env=environ(TERM="xterm"))
    os.close(theirs)
    shown = _read_all(ours)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, shown) == (0, "")
    assert out.startswith(b"{")


def test_output_encoding_without_a_letter_does_not_fail() -> None:
    """A terminal that lacks a letter shows a question mark."""
    process = start("generate", "Hi", texts=["w\u00f6rld \U0001f600"], env=environ(PYTHONIOENCODING="ascii"))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.strip(), err) == (0, b"w?rld ?", b"")


def test_module_runs_and_imports_nothing_heavy() -> None:
    """``python -P -m flashspec`` gives help without torch, transformers or scipy; importing needs no cyclopts."""
    done = subprocess.run(
        [sys.executable, "-P", "-X", "importtime", "-m", "flashspec", "--help"],
        env=environ(), capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Usage: flashspec" in done.stdout
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.decode().splitlines()}
    assert not names & {"torch", "transformers", "scipy", "matplotlib", "gguf"}
    code = "import sys, flashspec.cli; assert not {'cyclopts', 'rich', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=environ(), check=True, timeout=60)
