"""From measured runs to the rows of a report: one per system and group of kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flashspec.bench.pairing import Run, System
from flashspec.bench.stats import Pace, Ratio, paired_ratio, throughput

COPYING = ("code", "edit")
"""Kinds whose answers copy much of what came before; they also get a row together."""

Group = tuple[str, frozenset[str]]


def groups(kinds: Sequence[str]) -> list[Group]:
    """Each kind, ``code+edit`` where both are there, and ``all`` where there are several."""
    found: list[Group] = [(kind, frozenset({kind})) for kind in kinds]
    if set(COPYING) < set(kinds):
        found.append(("+".join(COPYING), frozenset(COPYING)))
    if len(kinds) > 1:
        found.append(("all", frozenset(kinds)))
    return found


def rows(
    runs: Sequence[Run], systems: Sequence[System], baseline: str, common: Mapping[str, Any], *, greedy: bool
) -> list[dict[str, Any]]:
    """One row per group and system. ``common`` holds what all rows share, such as the target."""
    kinds = list(dict.fromkeys(run.category for run in runs))
    return [
        _row([run for run in runs if run.category in members], system, baseline, kind, common, greedy)
        for kind, members in groups(kinds)
        for system in systems
    ]


def _row(
    runs: Sequence[Run], system: System, baseline: str, kind: str, common: Mapping[str, Any], greedy: bool
) -> dict[str, Any]:
    own = [run for run in runs if run.system == system.name]
    base = [run for run in runs if run.system == baseline]
    ratio = compare(own, base)
    rest = _rest(own, base)
    return {
        **common,
        "drafts": list(system.drafts),
        "selector": system.selector,
        "batch": 1,
        "kind": kind,
        "tokens_per_second": throughput([r.whole for r in own]),
        "baseline": throughput([r.whole for r in base]),
        "ratio": ratio.median,
        "ci95": _interval(ratio),
        "ratio_of_sums": ratio.of_sums,
        "system": system.name,
        "baseline_system": baseline,
        "prompts": len({r.question_id for r in own}),
        "repeats": len({r.repeat for r in own}),
        "tokens": sum(r.whole.tokens for r in own),
        "decode_tokens_per_second": rest[0],
        "decode_ratio": rest[1],
        **_lengths(own),
        "same_tokens": _same(own, base) if greedy else None,
        "versus": _versus(own, runs),
    }


def compare(own: Sequence[Run], other: Sequence[Run]) -> Ratio:
    """The paired ratio of two systems' whole calls."""
    partner = {(r.question_id, r.repeat): r.whole for r in other}
    pairs: dict[int, list[tuple[Pace, Pace]]] = {}
    for run in own:
        pairs.setdefault(run.question_id, []).append((run.whole, partner[run.question_id, run.repeat]))
    return paired_ratio(pairs)


def _rest(own: Sequence[Run], base: Sequence[Run]) -> tuple[float | None, float | None]:
    """Tokens per second after the first step, and its ratio of sums to the baseline's."""
    paces = [r.rest for r in own if r.rest is not None]
    others = [r.rest for r in base if r.rest is not None]
    if not paces or not others:
        return None, None
    rate = throughput(paces)
    return rate, rate / throughput(others)


def _lengths(own: Sequence[Run]) -> dict[str, float | None]:
    """Acceptance rate and mean emitted length over all runs; None where a system does not tell."""
    drafted = [r.answer.drafted for r in own]
    accepted = [r.answer.accepted for r in own]
    known = None not in drafted and None not in accepted
    offered, kept = sum(d or 0 for d in drafted), sum(a or 0 for a in accepted)
    emitted, steps = sum(len(r.answer.token_ids) for r in own), sum(r.answer.steps for r in own)
    return {
        "acceptance_rate": kept / offered if known and offered else None,
        "mean_emitted_length": emitted / steps,
    }


def _same(own: Sequence[Run], base: Sequence[Run]) -> float:
    """The fraction of runs whose tokens are the baseline's, token for token."""
    expected = {(r.question_id, r.repeat): r.answer.token_ids for r in base}
    return sum(r.answer.token_ids == expected[r.question_id, r.repeat] for r in own) / len(own)


def _versus(own: Sequence[Run], runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The paired ratio to every other system."""
    names = [name for name in dict.fromkeys(r.system for r in runs) if name != own[0].system]
    found = {name: compare(own, [r for r in runs if r.system == name]) for name in sorted(names)}
    return {name: {"ratio": ratio.median, "ci95": _interval(ratio)} for name, ratio in found.items()}


def _interval(ratio: Ratio) -> list[float] | None:
    return list(ratio.ci95) if ratio.ci95 else None
