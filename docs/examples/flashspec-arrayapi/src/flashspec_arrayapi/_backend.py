"""The backend object: checks at the border, then one batched computation that never reads a value back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from flashspec.checks import check_sample, check_verify
from flashspec.contract import (
    NO_TOKEN,
    Capabilities,
    Dense,
    Draw,
    Layout,
    Proposal,
    RowStats,
    Sample,
    Sampling,
    Status,
    Stream,
    Uniforms,
    Verdict,
)
from flashspec.errors import CapabilityError, ContractError

from flashspec_arrayapi._call import Call, lay_out
from flashspec_arrayapi._draw import choose
from flashspec_arrayapi._join import join
from flashspec_arrayapi._law import knobs, laws, unpack
from flashspec_arrayapi._methods import METHODS, Outcome, judged, log_probabilities
from flashspec_arrayapi._namespace import ARRAYS, Array, at, pick, xp
from flashspec_arrayapi._random import one

CAPABILITIES = Capabilities(
    methods=frozenset(METHODS),
    dtypes=frozenset({"float32", "float64"}),
    proposals=frozenset({"onehot", "sparse", "dense"}),
    filters=frozenset({"top_k", "top_p", "min_p", "allowed"}),
    devices=frozenset({"cpu"}),
    arrays=ARRAYS,
)
_INTEGERS = frozenset({"int32", "int64", "uint32", "uint64"})


@attrs.frozen
class ArrayBackend:
    """A verifier on arrays of the standard; all arithmetic in float64. See ``contract.Backend``."""

    name: str = "arrayapi"
    capabilities: Capabilities = CAPABILITIES

    def asarray(self, values: npt.NDArray[Any], dtype: str, device: str = "cpu") -> Array:
        """A copy of a host array with one of the declared dtypes."""
        known = self.capabilities.dtypes | _INTEGERS
        if dtype not in known or device not in self.capabilities.devices:
            raise CapabilityError(f"{dtype} on {device} is not declared; declared: {', '.join(sorted(known))} on cpu")
        return xp.asarray(np.array(values).astype(dtype))

    def to_numpy(self, array: Array) -> npt.NDArray[Any]:
        """A copy on the host."""
        return np.array(np.from_dlpack(array))

    def sample(self, logits: Array, sampling: Sampling, randomness: Draw | Uniforms) -> Sample:
        """One token per row of ``logits [B, V]`` and the law it came from."""
        # implements: PRP-7, PUR-1
        _own(logits, "logits")
        check_sample(self.capabilities, logits, sampling, randomness)
        words = sampling.allowed
        allowed = None if words is None else unpack(words, logits.shape[1])[:, None, :]
        rows = xp.asarray(logits, copy=True)[:, None, :]
        found = laws(rows, knobs(sampling, allowed))
        lawful = found.lawful
        drawn = choose(found.weights, one(randomness)[:, None])
        stats = RowStats(
            xp.where(lawful, found.top, -xp.inf),
            xp.where(lawful, found.mass, 0.0),
            xp.where(lawful, found.cut_logit, xp.inf),
            xp.where(lawful, found.cut_id, NO_TOKEN),
        )
        kept = attrs.evolve(sampling, allowed=None if words is None else xp.asarray(words, copy=True))
        tokens = xp.where(lawful, drawn, NO_TOKEN)[:, 0]
        logprobs = xp.where(lawful, pick(found.logs, drawn), 0.0)[:, 0]
        return Sample(tokens, Dense(rows, kept, stats), logprobs, found.status[:, 0])

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
        """Judge drafts against raw target logits."""
        _own(target_logits, "target_logits")
        check_verify(self.capabilities, target_logits, draft_tokens, proposal, layout, sampling, randomness, method)
        call = lay_out(target_logits, draft_tokens, proposal, layout, sampling, randomness)
        return _verdict(call, judged(call, method))

    def concat(self, proposals: Sequence[Dense]) -> Dense:
        """Join the proposals of consecutive ``sample`` calls."""
        return join(proposals)


backend = ArrayBackend()


def _own(logits: Array, name: str) -> None:
    if type(logits).__module__.partition(".")[0] != ARRAYS:
        raise ContractError(f"{name} is {type(logits).__name__}; allowed: an array of {ARRAYS}, made with asarray")


def _verdict(call: Call, outcome: Outcome) -> Verdict:
    """Accepted drafts, then the token of the next row unless that row has no law, then -1."""
    # implements: OUT-1, LAY-3, STS-3
    lawful, owned = at(call.target.lawful, outcome.accepted), call.rows > 0
    accepted = xp.where(owned, outcome.accepted, 0)
    emitted = xp.where(owned, accepted + xp.astype(lawful, xp.int64), 0)
    status = outcome.status | xp.where(lawful, int(Status.OK), at(call.target.status, outcome.accepted))
    places = xp.arange(call.drafts.shape[1] + 1, dtype=xp.int64)
    none = xp.full((accepted.shape[0], 1), NO_TOKEN, dtype=xp.int64)
    drafts = xp.concat([call.drafts, none], axis=1)
    tokens = xp.where(places < accepted[:, None], drafts, outcome.token[:, None])
    logprobs = log_probabilities(call, accepted, outcome.token)
    there = places < emitted[:, None]
    return Verdict(
        xp.where(there, tokens, NO_TOKEN),
        accepted,
        emitted,
        xp.where(owned, status, int(Status.OK)),
        xp.where(there, logprobs, 0.0),
    )
