"""Counters for Prometheus: FlashSpec's own names, or vLLM's for the four that dashboards know.

Needs the package ``prometheus-client`` (tried: 0.22 and later), the extra ``metrics``. A server registers a
:class:`Collector` once; a command writes :func:`exposition` to a file for a textfile collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import attrs

from flashspec.decoding.metrics import BOUNDS, Metrics
from flashspec.errors import CapabilityError

OWN, VLLM = "flashspec", "vllm"


def require() -> None:
    """Refuse before any work where prometheus-client is missing.

    Raises:
        CapabilityError: what to install.
    """
    try:
        import prometheus_client  # noqa: F401  # only whether it is there
    except ImportError as error:
        raise CapabilityError(
            f"metrics need the package prometheus-client ({error}); install FlashSpec with its metrics extra"
        ) from error


@attrs.frozen(eq=False)
class Collector:
    """What a ``prometheus_client`` registry asks at each scrape."""

    read: Callable[[], Metrics]
    """The sums of the moment, such as ``lambda: batch.metrics``."""
    model: str
    """The label ``model_name``."""
    engine: str = "0"
    """The label ``engine``."""
    names: str = OWN
    """``vllm`` gives the four ``spec_decode_num_*`` counters vLLM's prefix; all others keep FlashSpec's."""

    def collect(self) -> Iterator[Any]:
        """Every family of metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        metrics, labels, values = self.read(), ["model_name", "engine"], [self.model, self.engine]

        def counter(name: str, told: str, rows: dict[str, float], label: str | None = None) -> Any:
            extra = [] if label is None else [label]
            family = CounterMetricFamily(name, told, labels=[*labels, *extra])
            for key, value in rows.items():
                family.add_metric([*values, *([key] if label else [])], value)
            return family

        known, arms = f"{self.names}:spec_decode_num", metrics.arms
        yield counter(f"{known}_drafts", "Drafts that were verified.", {"": metrics.drafts})
        yield counter(f"{known}_draft_tokens", "Draft tokens that were verified.", {"": metrics.drafted})
        yield counter(f"{known}_accepted_tokens", "Draft tokens that were committed.", {"": metrics.accepted})
        at = {str(place): float(count) for place, count in enumerate(metrics.accepted_at)}
        yield counter(f"{known}_accepted_tokens_per_pos", "Accepted draft tokens by position.", at, "position")
        yield counter(f"{OWN}:generation_tokens", "Tokens committed.", {"": metrics.emitted})
        yield counter(f"{OWN}:steps", "Forwards of the target.", {"": metrics.steps})
        done = {reason: float(count) for reason, count in metrics.finished.items()}
        yield counter(f"{OWN}:request_success", "Requests that are over.", done, "finished_reason")
        pulls = {name: float(arm.pulls) for name, arm in arms.items()}
        yield counter(f"{OWN}:arm_pulls", "Steps of a request that used a draft.", pulls, "arm")
        kept = {name: float(arm.accepted) for name, arm in arms.items()}
        yield counter(f"{OWN}:arm_accepted_tokens", "Draft tokens committed.", kept, "arm")
        drafted = {name: float(arm.drafted) for name, arm in arms.items()}
        yield counter(f"{OWN}:arm_draft_tokens", "Draft tokens verified.", drafted, "arm")
        lost = {name: float(count) for name, count in metrics.lost.items()}
        yield counter(f"{OWN}:draft_failures", "Requests in which a draft failed.", lost, "arm")
        yield counter(f"{OWN}:decode_seconds", "Seconds of all steps.", {"": metrics.seconds})
        told = "Estimated seconds of the same tokens without drafts; over decode_seconds: the speed-up."
        yield counter(f"{OWN}:plain_decode_seconds", told, {"": metrics.plain_seconds})
        if metrics.speedup is not None:
            gauge = GaugeMetricFamily(f"{OWN}:speedup_estimate", "Speed-up since the start.", labels=labels)
            gauge.add_metric(values, metrics.speedup)
            yield gauge
        steps = HistogramMetricFamily(f"{OWN}:step_seconds", "Seconds by phase of a step.", labels=[*labels, "phase"])
        for phase, histogram in metrics.phases.items():
            sums = accumulate(histogram.counts)
            buckets = list(zip([*map(str, BOUNDS), "+Inf"], sums, strict=True))
            steps.add_metric([*values, phase], buckets, histogram.seconds)
        yield steps


def exposition(metrics: Metrics, model: str, *, engine: str = "0", names: str = OWN) -> str:
    """The sums in Prometheus' text format.

    Raises:
        CapabilityError: prometheus-client is not installed.
    """
    require()
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Collector(lambda: metrics, model, engine, names))
    return generate_latest(registry).decode()
