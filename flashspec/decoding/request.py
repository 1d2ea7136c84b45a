"""What a request asks for and what it gets back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import attrs
import numpy as np

from flashspec.contract import Sampling
from flashspec.errors import ContractError

FinishReason = Literal["eos", "stop", "length"]

UINT64 = 2**64


def _tokens(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _ids(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ContractError(f"stop is the string {values!r}; allowed: a sequence of strings")
    return tuple(values)


@attrs.frozen
class Request:
    """One prompt and its settings. The tokens are a function of (weights, drafts, cost table, this value).

    Raises:
        ContractError: an empty prompt, a negative budget, or sampling parameters that
            ``contract.Sampling`` refuses.
    """

    prompt_ids: tuple[int, ...] = attrs.field(converter=_tokens)
    max_new_tokens: int
    min_new_tokens: int = 0
    """EOS has probability 0 until this many new tokens are there."""
    temperature: float = 0.0
    """0 is greedy."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """Key of every random stream of the request, in ``[0, 2**64)``."""
    eos_ids: frozenset[int] = attrs.field(default=frozenset(), converter=_ids)
    stop: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    """Generation ends with the token that completes one of these; the text ends before it."""

    def __attrs_post_init__(self) -> None:
        for name in ("max_new_tokens", "min_new_tokens", "top_k", "seed"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise ContractError(f"{name} is {getattr(self, name)!r}; allowed: an integer")
        if not self.prompt_ids:
            raise ContractError("the prompt is empty; give at least one token")
        if self.max_new_tokens < 0:
            raise ContractError(f"max_new_tokens is {self.max_new_tokens}; allowed: an integer >= 0")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ContractError(
                f"min_new_tokens is {self.min_new_tokens}; allowed: 0 to max_new_tokens ({self.max_new_tokens})"
            )
        if not 0 <= self.seed < UINT64:
            raise ContractError(f"seed is {self.seed}; allowed: an integer in [0, 2**64)")
        if any(not text for text in self.stop):
            raise ContractError("a stop string is empty; leave it out")
        self.sampling()

    def sampling(self) -> Sampling:
        """The sampling parameters of this request as a batch of one."""
        return Sampling.of(
            1, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p
        )


@attrs.frozen
class ArmStats:
    """How often one draft was used and how well it did; committed tokens only."""

    pulls: int = 0
    """Steps that used it."""
    drafted: int = 0
    """Draft tokens offered, counted up to where EOS, stop or budget cut the step."""
    accepted: int = 0
    """Draft tokens committed."""

    def add(self, drafted: int, accepted: int) -> ArmStats:
        """The counts with one more step."""
        return ArmStats(self.pulls + 1, self.drafted + drafted, self.accepted + accepted)


@attrs.frozen
class Stats:
    """Counts and times of one request. Times are wall-clock seconds."""

    steps: int
    drafted: int
    accepted: int
    emitted: int
    seconds: float
    """The whole request, prefill included."""
    prefill_seconds: float
    arms: Mapping[str, ArmStats]
    """Per draft name; ``none`` counts the steps without a draft."""
    plain_tokens_per_second: float | None = None
    """Estimate of the same request without drafts, prefill included: each further token costs the median of this
    request's own steps without a draft or, where they are fewer than five, the measured cost of such a step; None
    when nothing was emitted."""

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens over all seconds, prefill included; 0 when nothing was emitted or timed."""
        return self.emitted / self.seconds if self.seconds > 0 else 0.0

    @property
    def mean_emitted_length(self) -> float:
        """Emitted tokens per step; 0 without steps."""
        return self.emitted / self.steps if self.steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0


@attrs.frozen
class Result:
    """A finished request."""

    token_ids: tuple[int, ...]
    """New tokens, the ending EOS or the token that completed a stop string included."""
    text: str
    """Their text without special tokens, cut before a stop string."""
    finish_reason: FinishReason
    stats: Stats


@attrs.frozen
class Chunk:
    """What one step added to the output."""

    text: str
    """Text that is certain by now: no half characters, no part of a possible stop string."""
    token_ids: tuple[int, ...]
