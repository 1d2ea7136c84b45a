"""Batches with drafts against the same batches without, paired and interleaved: ``python -P -m flashspec.bench.batch``.

A round takes prompts of mixed kinds, ``--queue`` times ``--batch`` of them, and decodes them ``--batch`` at a
time with every system, whose order rotates. With a queue, a request that is done makes room for the next one;
without, the slowest request of a batch decides how long it takes. End tokens are tokens like any other, so
that all answers are equally long.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from flashspec.bench.header import header
from flashspec.bench.pairing import order
from flashspec.bench.prompts import choose, load_prompts
from flashspec.drafts.spec import DEFAULT_DRAFT_MAX, DEFAULT_DRAFTS

if TYPE_CHECKING:
    from flashspec.decoding.batch import BatchEngine
    from flashspec.decoding.request import Request, Result


@attrs.frozen
class Round:
    """One batch decoded by one system."""

    seconds: float
    tokens: tuple[tuple[int, ...], ...]
    steps: int
    """Of all requests together."""
    drafted: int
    accepted: int

    @property
    def speed(self) -> float:
        """Tokens of all requests per second, prompts read included."""
        return sum(len(t) for t in self.tokens) / self.seconds


def run_round(engine: BatchEngine, requests: Sequence[Request]) -> Round:
    """Decode all requests together."""
    from flashspec.decoding.batch_loop import generate_all

    engine.lm.synchronize()
    begin = time.perf_counter()
    results: list[Result] = generate_all(engine, requests)
    engine.lm.synchronize()
    seconds = time.perf_counter() - begin
    drafted, accepted = sum(r.stats.drafted for r in results), sum(r.stats.accepted for r in results)
    return Round(seconds, tuple(r.token_ids for r in results), sum(r.stats.steps for r in results), drafted, accepted)


def row(name: str, rounds: Sequence[Round], plain: Sequence[Round]) -> dict[str, Any]:
    """Speeds and counts of one system over all rounds; ratios are of the same round's plain decoding."""
    ratios = [r.speed / p.speed for r, p in zip(rounds, plain, strict=True)]
    same = [a == b for r, p in zip(rounds, plain, strict=True) for a, b in zip(r.tokens, p.tokens, strict=True)]
    drafted = sum(r.drafted for r in rounds)
    return {
        "system": name,
        "tokens_per_second": sum(len(t) for r in rounds for t in r.tokens) / sum(r.seconds for r in rounds),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "mean_emitted_length": sum(len(t) for r in rounds for t in r.tokens) / sum(r.steps for r in rounds),
        "acceptance_rate": sum(r.accepted for r in rounds) / drafted if drafted else None,
        "same_tokens": sum(same) / len(same),
    }


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Load, build both systems, warm them up, and decode every round with both."""
    from flashspec.hf import Speculator, load
    from flashspec.hf.batch import batch_engine
    from flashspec.hf.loading import encode_prompt

    loaded = load(options.target, dtype=options.dtype, device=options.device, threads=options.threads)
    built = {
        "plain": Speculator.build(loaded, [], recalibrate=options.recalibrate),
        "speculation": Speculator.build(
            loaded,
            options.draft,
            draft_max=options.draft_max,
            selector=options.selector,
            recalibrate=options.recalibrate,
        ),
    }
    engines = {name: batch_engine(s, options.batch, recalibrate=options.recalibrate) for name, s in built.items()}
    size = options.batch * options.queue
    prompts = choose(load_prompts(options.prompts))[: size * options.rounds]
    requests = [
        built["plain"].default_request(
            encode_prompt(loaded, p.text), max_new_tokens=options.max_new_tokens, eos_ids=frozenset(), seed=i,
            temperature=options.temperature,
        )
        for i, p in enumerate(prompts)
    ]  # fmt: skip
    groups = [requests[i : i + size] for i in range(0, len(requests), size)]
    rounds: dict[str, list[Round]] = {name: [] for name in engines}
    for engine in engines.values():
        run_round(engine, [attrs.evolve(r, max_new_tokens=8) for r in groups[0]])
    for place, group in enumerate(groups):
        for name in order(list(engines), place, 0):
            rounds[name].append(run_round(engines[name], group))
    return [row(name, done, rounds["plain"]) for name, done in rounds.items()]


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(prog="python -P -m flashspec.bench.batch", description=__doc__)
    made.add_argument("--target", default="smollm2-135m", help="preset, folder or hub id")
    made.add_argument("--batch", type=int, default=4, help="requests at a time")
    made.add_argument("--queue", type=int, default=2, help="batches of prompts in line at the start of a round")
    made.add_argument("--rounds", type=int, default=5, help="each of other prompts")
    made.add_argument("--max-new-tokens", type=int, default=128, help="tokens of each answer")
    made.add_argument("--draft", nargs="+", default=list(DEFAULT_DRAFTS), help="drafts to choose from")
    made.add_argument("--draft-max", type=int, default=DEFAULT_DRAFT_MAX, help="longest draft")
    made.add_argument("--selector", default="cht", help="what chooses")
    made.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    made.add_argument("--dtype", default="auto", help="bfloat16, float16, float32")
    made.add_argument("--device", default="auto", help="cpu, cuda")
    made.add_argument("--threads", type=int, default=None, help="CPU threads")
    made.add_argument("--prompts", default=None, metavar="FILE", help="JSON lines in Spec-Bench's fields")
    made.add_argument("--recalibrate", action="store_true", help="measure step costs again")
    made.add_argument("--json", default=None, metavar="FILE", help="write the report here")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run, print one line a system, and write the report."""
    options = parser().parse_args(words)
    command = shlex.join(["python", "-P", "-m", "flashspec.bench.batch", *(sys.argv[1:] if words is None else words)])
    rows = compare(options)
    about = {
        "batch": options.batch,
        "queue": options.queue,
        "rounds": options.rounds,
        "max_new_tokens": options.max_new_tokens,
    }
    report = {"header": {**header(command), **about}, "rows": rows}
    if options.json is not None:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for found in rows:
        accepted = "-" if found["acceptance_rate"] is None else f"{found['acceptance_rate']:.2f}"
        sys.stdout.write(
            f"{found['system']:<12} {found['tokens_per_second']:7.1f} tokens/s  ratio {found['ratio']:.2f}  "
            f"emitted a step {found['mean_emitted_length']:.2f}  accepted {accepted}  "
            f"same tokens {found['same_tokens']:.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
