"""The backend object: checks at the border, then one plain loop over the requests."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec.checks import check_sample, check_verify
from flashspec.contract import (
    NO_TOKEN,
    Array,
    Capabilities,
    Dense,
    Draw,
    Layout,
    Padded,
    Proposal,
    Ragged,
    RowStats,
    Sample,
    Sampling,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import CapabilityError, ContractError
from flashspec.rng import draw_bits, unit64
from flashspec_numpy._draw import inverse_cdf
from flashspec_numpy._join import join
from flashspec_numpy._law import Stats, fault, law, params
from flashspec_numpy._request import Outcome, Request, randomness
from flashspec_numpy._verify import judge

if TYPE_CHECKING:
    from collections.abc import Sequence

CAPABILITIES = Capabilities(
    methods=frozenset({"greedy", "token", "block", "path"}),
    dtypes=frozenset({"float16", "float32", "float64"}),
    proposals=frozenset({"onehot", "sparse", "dense"}),
    filters=frozenset({"top_k", "top_p", "min_p", "allowed"}),
    devices=frozenset({"cpu"}),
)
_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})
_NO_STATS = Stats(-np.inf, 0.0, np.inf, NO_TOKEN)


@attrs.frozen
class NumpyBackend:
    """Float64 verifier on the host; every vector is a NumPy array. See ``contract.Backend``."""

    name: str = "numpy"
    capabilities: Capabilities = CAPABILITIES

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """A copy of ``values`` with one of the declared dtypes."""
        if dtype not in self.capabilities.dtypes | _INTEGERS or device not in self.capabilities.devices:
            known = ", ".join(sorted(self.capabilities.dtypes | _INTEGERS))
            raise CapabilityError(f"dtype {dtype!r} on {device!r} is not declared; allowed: {known} on 'cpu'")
        return np.array(values).astype(dtype)

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """A copy of ``array``."""
        return np.array(array)

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """Draw one token per row of ``logits [B, V]``; see ``contract.Backend.sample``."""
        _host(logits, "logits")
        check_sample(self.capabilities, logits, sampling, randomness)
        integers = randomness.sampling if isinstance(randomness, Uniforms) else draw_bits(randomness)
        drawn = [_draw(logits[b], sampling, b, float(unit64(integers[b]))) for b in range(sampling.batch)]
        stats = np.array([attrs.astuple(s) for _, _, s, _ in drawn], np.float64).reshape(-1, 4, 1)
        # implements: PRP-7, PUR-1
        proposal = Dense(
            np.array(logits)[:, None, :],
            attrs.evolve(sampling, allowed=None if sampling.allowed is None else np.array(sampling.allowed)),
            RowStats(stats[:, 0].copy(), stats[:, 1].copy(), stats[:, 2].copy(), stats[:, 3].astype(np.int64)),
        )
        return Sample(
            np.array([token for token, _, _, _ in drawn], np.int64),
            proposal,
            np.array([log for _, log, _, _ in drawn], np.float64),
            np.array([int(bits) for _, _, _, bits in drawn], np.int64),
        )

    def verify(
        self,
        target_logits: Array,
        draft_tokens: Array,
        proposal: Proposal,
        layout: Layout,
        sampling: Sampling,
        randomness: Stream | Uniforms,
        method: str = "token",
    ) -> Verdict:
        """Judge drafts against raw target logits; see ``contract.Backend.verify``."""
        _host(target_logits, "target_logits")
        check_verify(self.capabilities, target_logits, draft_tokens, proposal, layout, sampling, randomness, method)
        batch, longest = draft_tokens.shape
        outcomes = _outcomes(target_logits, draft_tokens, proposal, layout, sampling, randomness, method)
        return _verdict(outcomes, batch, longest)

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join proposals of consecutive ``sample`` calls along the draft axis, as copies."""
        return join(proposals)


backend = NumpyBackend()


def _host(logits: Array, name: str) -> None:
    if not isinstance(logits, np.ndarray):
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: numpy.ndarray; asarray makes one")


def _draw(logits: Array, sampling: Sampling, request: int, uniform: float) -> tuple[int, float, Stats, Status]:
    """Token, log probability, statistics and status of one row."""
    row = logits.astype(np.float64)
    given = params(sampling, request, request, row.size)
    if broken := fault(row, given.allowed):
        return NO_TOKEN, 0.0, _NO_STATS, broken
    found = law(row, given)
    token = inverse_cdf(found.weights, uniform)
    return token, float(found.logs[token]), found.stats, Status.OK


def _outcomes(
    logits: Array,
    drafts: Array,
    proposal: Proposal,
    layout: Layout,
    sampling: Sampling,
    source: Stream | Uniforms,
    method: str,
) -> list[Outcome]:
    # implements: LAY-1, LAY-4
    batch, longest = drafts.shape
    accept, uniform = randomness(source, longest, method)
    if isinstance(layout, Ragged):
        edges = [int(edge) for edge in layout.cu_rows]
    else:
        assert isinstance(layout, Padded)
        edges = [b * (longest + 1) for b in range(batch + 1)]
    outcomes = []
    for b, (first, stop) in enumerate(pairwise(edges)):
        rows = logits[first:stop] if isinstance(layout, Ragged) else logits[b]
        judged = [int(x) for x in drafts[b, : max(stop - first - 1, 0)]]
        request = Request(
            b,
            rows,
            first,
            judged,
            proposal,
            sampling,
            partial(accept, b),
            partial(uniform, b),
        )
        outcomes.append(judge(request, method))
    return outcomes


def _verdict(outcomes: list[Outcome], batch: int, longest: int) -> Verdict:
    # implements: OUT-1, LGP-1
    tokens = np.full((batch, longest + 1), NO_TOKEN, np.int64)
    logprobs = np.zeros((batch, longest + 1))
    for b, outcome in enumerate(outcomes):
        tokens[b, : len(outcome.tokens)] = outcome.tokens
        logprobs[b, : len(outcome.tokens)] = outcome.logprobs
    return Verdict(
        tokens,
        np.array([o.accepted for o in outcomes], np.int64),
        np.array([len(o.tokens) for o in outcomes], np.int64),
        np.array([int(o.status) for o in outcomes], np.int64),
        logprobs,
    )
