"""A vLLM OpenAI server in a process of its own, and the few calls that the session makes of it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

PATIENCE = 300.0
"""Seconds that a server may take to start."""
POOL = "flashspec.integrations.vllm.pool.Pool"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_PLUGINS": "flashspec",
}


@attrs.frozen
class Server:
    """One that answers."""

    port: int
    log: Path

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON or text of an answer.

        Raises:
            urllib.error.HTTPError: the server refused.
        """
        with self.open(path, body) as answer:
            text = answer.read().decode()
        kind = answer.headers["Content-Type"] or ""
        return json.loads(text) if kind.startswith("application/json") else text

    def open(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer as a stream."""
        data = None if body is None else json.dumps({"model": "m", **body}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def complete(self, prompt: str, **given: Any) -> Any:
        """The choices of a completion, with token ids."""
        return self.ask("/v1/completions", {"prompt": prompt, "return_token_ids": True, **given})["choices"]

    def chunks(self, prompt: str, **given: Any) -> Iterator[str]:
        """The pieces of text of a streamed completion; closing it aborts the request."""
        with self.open("/v1/completions", {"prompt": prompt, "stream": True, **given}) as answer:
            for line in answer:
                data = line.decode().removeprefix("data: ").strip()
                if data and data != "[DONE]":
                    yield json.loads(data)["choices"][0]["text"]

    def counter(self, name: str) -> float:
        """The sum of a counter over its labels."""
        lines = [line for line in self.ask("/metrics").splitlines() if line.startswith(name)]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextlib.contextmanager
def serve(
    model: Path, log: Path, speculative: Mapping[str, Any] | None, dtype: str, more: Mapping[str, str], *options: str
) -> Iterator[Server]:
    """A server, stopped at the end.

    Raises:
        RuntimeError: it ended, or did not answer in time; the end of its log is told.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    words += ["--served-model-name", "m", "--port", str(port), "--host", "127.0.0.1", "--dtype", dtype]
    words += ["--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "8", "--seed", "7"]
    words += options
    words += [] if speculative is None else ["--speculative-config", json.dumps(dict(speculative))]
    with log.open("wb") as out:
        process = subprocess.Popen(words, env={**os.environ, **OFFLINE, **more}, stdout=out, stderr=out)
    server = Server(port, log)
    try:
        wait(server, process)
        yield server
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
        process.wait()


def wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Until it answers."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            server.ask("/health")
            return
        time.sleep(0.5)
    raise RuntimeError(f"no server: {server.log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
