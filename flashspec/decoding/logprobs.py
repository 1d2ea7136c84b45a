"""Log-probabilities of emitted tokens and of the likeliest ones beside them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from flashspec.contract import Array, Backend, Sampling, Uniforms
from flashspec.decoding.rows import Rows
from flashspec.errors import CapabilityError


@attrs.frozen
class TokenLogprobs:
    """What one law says about one emitted token."""

    logprob: float
    """Natural log of its probability."""
    top: tuple[tuple[int, float], ...] = ()
    """The likeliest ids with theirs, best first; fewer than asked for where filters leave fewer."""


def of_law(
    backend: Backend, rows: Rows, logits: Array, sampling: Sampling, tokens: Sequence[int], count: int
) -> tuple[TokenLogprobs, ...]:
    """What the law that ``sampling`` makes of ``logits [n, V]`` says about ``tokens``, one a row.

    A greedy row's law is a point mass: its token has 0.0 and stands alone.

    Raises:
        CapabilityError: the backend's ``sample`` keeps no statistics.
    """
    if not tokens:
        return ()
    if not np.any(sampling.temperature):
        return tuple(TokenLogprobs(0.0, ((t, 0.0),) if count else ()) for t in tokens)
    unread = backend.asarray(np.zeros(len(tokens), np.uint64), "uint64", rows.device)
    stats = backend.sample(logits, sampling, Uniforms(unread)).proposal.stats
    if stats is None:
        raise CapabilityError(f"backend {backend.name} records no statistics of its laws, which log-probabilities need")
    own, values, ids = rows.top(logits, np.array(tokens, np.int64), count, sampling.allowed)
    largest, mass, cut, cut_id = (
        backend.to_numpy(x).astype(np.float64).reshape(-1)
        for x in (stats.max, stats.mass, stats.cut_logit, stats.cut_id)
    )
    made = []
    for i in range(len(tokens)):
        heat, high, base = float(sampling.temperature[i]), float(largest[i]), float(np.log(mass[i]))
        kept = (values[i] > cut[i]) | ((values[i] == cut[i]) & (ids[i] <= cut_id[i]))
        kept &= np.isfinite(values[i])
        top = tuple(
            (int(t), (float(v) - high) / heat - base) for t, v in zip(ids[i][kept], values[i][kept], strict=True)
        )
        made.append(TokenLogprobs((float(own[i]) - high) / heat - base, top))
    return tuple(made)
