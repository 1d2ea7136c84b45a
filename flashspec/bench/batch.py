"""Batches with drafts against the same batches without, paired and interleaved: ``bench decode --batch 4 16``.

A round takes prompts of all kinds by turns, ``queue`` times the batch of them, and every system decodes them
that many at a time before the next round. A request that is done makes room for the next in line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from flashspec.bench.pairing import Clock, Progress, order
from flashspec.bench.prompts import Prompt
from flashspec.bench.stats import Pace, Ratio, paired_ratio, throughput
from flashspec.errors import ContractError

if TYPE_CHECKING:
    from flashspec.bench.systems import Ours
    from flashspec.decoding.batch import BatchEngine
    from flashspec.decoding.metrics import Metrics
    from flashspec.decoding.request import Request

Open = Callable[["Ours", int], "BatchEngine"]


@attrs.frozen
class Round:
    """Some prompts decoded by one system."""

    system: str
    number: int
    repeat: int
    pace: Pace
    """All tokens over the wall clock, prompts read included."""
    tokens: tuple[tuple[int, ...], ...]
    metrics: Metrics


def groups(prompts: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """Rounds of ``size`` prompts; prompts that fill no round are left out.

    Raises:
        ContractError: fewer prompts than one round has.
    """
    found = [list(prompts[i : i + size]) for i in range(0, len(prompts) - size + 1, size)]
    if not found:
        raise ContractError(f"a round has {size} prompts, and there are {len(prompts)}; lower --batch or --queue")
    return found


def decode(
    engine: BatchEngine, requests: Sequence[Request], clock: Clock
) -> tuple[Pace, tuple[tuple[int, ...], ...], Metrics]:
    """Decode requests together: how fast, their tokens, and the counts.

    Raises:
        FlashSpecError: why a request could not go on.
    """
    from flashspec.decoding.batch_loop import Batch

    engine.lm.synchronize()
    begin = clock()
    batch = Batch(engine)
    keys = [batch.submit(request) for request in requests]
    for _ in batch:
        pass
    engine.lm.synchronize()
    seconds = clock() - begin
    for error in batch.errors.values():
        raise error
    tokens = tuple(batch.results[key].token_ids for key in keys)
    return Pace(sum(map(len, tokens)), seconds), tokens, batch.metrics


def measure(
    systems: Sequence[Ours],
    prompts: Sequence[Prompt],
    size: int,
    queue: int,
    repeats: int,
    seed: int,
    clock: Clock,
    progress: Progress,
    opened: Open,
) -> list[Round]:
    """Warm every system up, then decode every round with each; the order rotates."""
    engines = {system.name: opened(system, size) for system in systems}
    rounds, found = groups(prompts, size * queue), list[Round]()
    for system in systems:
        progress(f"warming up {system.name} at batch {size}")
        decode(engines[system.name], [_short(system.request(p, seed)) for p in rounds[0][:size]], clock)
    for repeat in range(repeats):
        for number, members in enumerate(rounds):
            progress(f"batch {size}, round {repeat * len(rounds) + number + 1} of {repeats * len(rounds)}")
            for system in order(systems, number, repeat):
                requests = [system.request(p, seed + repeat) for p in members]
                found.append(Round(system.name, number, repeat, *decode(engines[system.name], requests, clock)))
    return found


def _short(request: Request) -> Request:
    few = min(8, request.max_new_tokens)
    return attrs.evolve(request, max_new_tokens=few, min_new_tokens=min(few, request.min_new_tokens))


def rows(
    rounds: Sequence[Round],
    systems: Sequence[Ours],
    baseline: str,
    common: Mapping[str, Any],
    size: int,
    *,
    prompts: int,
    greedy: bool,
) -> list[dict[str, Any]]:
    """A row for each system, with the keys of the rows of batch 1 and those of :func:`counts`."""
    made = []
    for system in systems:
        own = [r for r in rounds if r.system == system.name]
        base = {(r.number, r.repeat): r for r in rounds if r.system == baseline}
        same = [
            a == b
            for r in own
            for a, b in zip(r.tokens, base[r.number, r.repeat].tokens, strict=True)
        ]  # fmt: skip
        ratio = compare(own, base)
        made.append(
            {
                **common,
                "drafts": list(system.drafts),
                "selector": system.selector,
                "batch": size,
                "kind": "all",
                "tokens_per_second": throughput([r.pace for r in own]),
                "baseline": throughput([r.pace for r in base.values()]),
                "ratio": ratio.median,
                "ci95": list(ratio.ci95) if ratio.ci95 else None,
                "ratio_of_sums": ratio.of_sums,
                "system": system.name,
                "baseline_system": baseline,
                "prompts": prompts,
                "repeats": len({r.repeat for r in own}),
                "tokens": sum(r.pace.tokens for r in own),
                "decode_tokens_per_second": None,
                "decode_ratio": None,
                **counts([r.metrics for r in own]),
                "same_tokens": sum(same) / len(same) if greedy else None,
                "versus": {},
            }
        )
    return made


def compare(own: Sequence[Round], base: Mapping[tuple[int, int], Round]) -> Ratio:
    """The paired ratio; a round is the unit."""
    pairs: dict[int, list[tuple[Pace, Pace]]] = {}
    for each in own:
        pairs.setdefault(each.number, []).append((each.pace, base[each.number, each.repeat].pace))
    return paired_ratio(pairs)


def counts(found: Sequence[Metrics]) -> dict[str, Any]:
    """What does not depend on a clock, and where the time went."""
    steps, emitted, drafted, accepted = (
        sum(getattr(m, name) for m in found) for name in ("steps", "emitted", "drafted", "accepted")
    )
    turns = sum(arm.pulls for m in found for arm in m.arms.values())
    seconds, plain = sum(m.seconds for m in found), sum(m.plain_seconds for m in found)
    names = dict.fromkeys(name for m in found for name in m.phases)
    return {
        "acceptance_rate": accepted / drafted if drafted else None,
        "mean_emitted_length": emitted / turns,
        "forwards": steps,
        "mean_batch": turns / steps,
        "mean_width": 1 + drafted / turns,
        "speedup_estimate": plain / seconds,
        "phases": {name: sum(m.phases[name].seconds for m in found if name in m.phases) for name in names},
    }
