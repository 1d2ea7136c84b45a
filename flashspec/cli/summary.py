"""What ``flashspec generate`` reports at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from flashspec.cli import output
from flashspec.cli.live import COLUMNS, rows
from flashspec.decoding import ArmStats, Request, Result, Stats
from flashspec.decoding.metrics import Metrics

if TYPE_CHECKING:
    from flashspec.cli.generate import Options

OFF = "none"
"""The engine's name for a step without a draft."""


def report_of(
    options: Options, loaded: Any, speculator: Any, request: Request, result: Result, plain: Result | None
) -> dict[str, Any]:
    """The JSON report of one request."""
    report = {**result_of(request, result), **about(options, loaded, speculator)}
    if plain is not None:
        report["plain"] = {
            "tokens_per_second": plain.stats.tokens_per_second,
            "token_ids": list(plain.token_ids),
            "same_tokens": plain.token_ids == result.token_ids,
        }
    return report


def about(options: Options, loaded: Any, speculator: Any) -> dict[str, Any]:
    """What all requests of a command share."""
    return {
        "backend": speculator.engine.backend.name,
        "target": options.target,
        "selector": options.selector,
        "method": speculator.engine.method,
        "drafts": list(options.drafts()),
        "draft_max": options.draft_max,
        "graphs": options.graphs,
        "dtype": loaded.dtype,
        "device": loaded.device,
    }


def result_of(request: Request, result: Result) -> dict[str, Any]:
    """What one request got."""
    report: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "origins": list(result.origins),
        "stats": stats_of(result.stats),
        "metrics": {"speculative_decoding": speculative(result.stats)},
        "seed": request.seed,
        "prompt_tokens": len(request.prompt_ids),
        "sampling": {
            "temperature": request.temperature,
            "top_k": request.top_k,
            "top_p": request.top_p,
            "min_p": request.min_p,
            "repetition_penalty": request.repetition_penalty,
            "presence_penalty": request.presence_penalty,
            "frequency_penalty": request.frequency_penalty,
            "no_repeat_ngram": request.no_repeat_ngram,
        },
    }
    if request.logprobs is not None:
        report["logprobs_of"] = request.logprobs_of
        report["logprobs"] = [
            {"logprob": told.logprob, "top": [{"id": token, "logprob": x} for token, x in told.top]}
            for told in result.logprobs
        ]
    return report


def speculative(stats: Stats) -> dict[str, Any]:
    """Acceptance under the keys of vLLM's per-request object; a step without a draft is no draft."""
    drafts, drafted = sum(stats.runs), stats.drafted
    return {
        "mean_acceptance_length": 1 + stats.accepted / drafts if drafts else None,
        "draft_acceptance_rate": stats.accepted / drafted if drafted else None,
        "acceptance_histogram": list(stats.runs),
        "num_drafts": drafts,
        "num_draft_tokens": drafted,
        "num_accepted_tokens": stats.accepted,
    }


def whole_of(metrics: Metrics, seconds: float) -> dict[str, Any]:
    """Counts and speeds of a whole batch that took ``seconds`` on the wall clock."""
    return {
        "tokens_per_second": metrics.emitted / seconds if seconds > 0 else 0.0,
        "plain_tokens_per_second": metrics.emitted / metrics.plain_seconds if metrics.plain_seconds else None,
        "speedup_estimate": metrics.speedup,
        "acceptance_rate": metrics.accepted / metrics.drafted if metrics.drafted else 0.0,
        "steps": metrics.steps,
        "drafts": metrics.drafts,
        "drafted": metrics.drafted,
        "accepted": metrics.accepted,
        "accepted_at": list(metrics.accepted_at),
        "emitted": metrics.emitted,
        "seconds": seconds,
        "phases": {name: histogram.seconds for name, histogram in metrics.phases.items()},
        "finished": dict(metrics.finished),
        "arms": {name: attrs.asdict(arm) for name, arm in metrics.arms.items()},
    }


def stats_of(stats: Stats) -> dict[str, Any]:
    """Counts and speeds; seconds and tokens per second."""
    return {
        "tokens_per_second": stats.tokens_per_second,
        "mean_emitted_length": stats.mean_emitted_length,
        "acceptance_rate": stats.acceptance_rate,
        "steps": stats.steps,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "emitted": stats.emitted,
        "seconds": stats.seconds,
        "prefill_seconds": stats.prefill_seconds,
        "plain_tokens_per_second": stats.plain_tokens_per_second,
        "speedup_estimate": stats.speedup_estimate,
        "selector_seconds": stats.selector_seconds,
        "shadow_seconds": sum(arm.shadow_seconds for arm in stats.arms.values()),
        "lost": dict(stats.lost),
        "arms": {name: attrs.asdict(arm) for name, arm in stats.arms.items()},
    }


def tables(report: dict[str, Any]) -> list[Any]:
    """The report as a short table with a line before and lines after it."""
    stats = report["stats"]
    arms = {name: ArmStats(**arm) for name, arm in stats["arms"].items()}
    first = (
        f"\n{stats['emitted']} tokens in {stats['seconds']:.2f} s: {stats['tokens_per_second']:.1f} tokens/s, "
        f"mean emitted length {stats['mean_emitted_length']:.2f}, finished by {report['finish_reason']}"
    )
    return [first, output.table("", COLUMNS, rows(arms)), *_plain(report)]


def _plain(report: dict[str, Any]) -> list[str]:
    """How fast the target is without drafts."""
    lines = []
    speed = report["stats"]["tokens_per_second"]
    if estimate := report["stats"]["plain_tokens_per_second"]:
        lines.append(f"plain decoding here: {estimate:.1f} tokens/s (estimated from what one-token steps cost)")
    if plain := report.get("plain"):
        measured = plain["tokens_per_second"]
        ratio = f", ratio {speed / measured:.2f}" if measured else ""
        same = "the same tokens" if plain["same_tokens"] else "other tokens"
        lines.append(f"plain decoding of this prompt: {measured:.1f} tokens/s (measured){ratio}; {same}")
    return lines
