"""What a request asks for and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import attrs
import numpy as np

from flashspec.contract import Sampling
from flashspec.decoding.logprobs import TokenLogprobs
from flashspec.decoding.processing import Grammar, Processor
from flashspec.decoding.settings import Pairs, built_in, pairs, sequences
from flashspec.errors import ContractError

FinishReason = Literal["eos", "stop", "length"]
LogprobsOf = Literal["raw", "processed"]

UINT64 = 2**64


def _tokens(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(values)


def _ids(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


def _some_ids(values: Iterable[int] | None) -> frozenset[int] | None:
    return None if values is None else frozenset(values)


def _rules(values: Iterable[Processor]) -> tuple[Processor, ...]:
    return tuple(values)


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise ContractError(f"stop is the string {values!r}; allowed: a sequence of strings")
    return tuple(values)


@attrs.frozen
class Request:
    """One prompt and its settings. The tokens are a function of (weights, drafts, cost table, this value).

    Logits are changed in this order: ``logit_bias``; repetition, presence and frequency penalties;
    ``no_repeat_ngram``, ``bad_words``, ``allowed_ids``, ``min_new_tokens`` and ``grammar``, which forbid;
    ``processors`` as they stand. Temperature and filters follow, in the backend.

    Raises:
        ContractError: an empty prompt, a negative budget, a setting out of range or two that leave no token,
            or sampling parameters that ``contract.Sampling`` refuses.
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
    repetition_penalty: float = 1.0
    """Tokens of prompt and new text: positive logits are divided by it, negative ones multiplied; 1 is off."""
    presence_penalty: float = 0.0
    """Taken off the logit of each token of the new text; 0 is off."""
    frequency_penalty: float = 0.0
    """Taken off once for each time that the token is in the new text; 0 is off."""
    no_repeat_ngram: int = 0
    """No run of this many tokens comes twice in prompt and new text; 0 is off."""
    logit_bias: Pairs = attrs.field(default=(), converter=pairs)
    """Added to the logits of these ids: a mapping, kept as pairs; minus infinity forbids."""
    bad_words: tuple[tuple[int, ...], ...] = attrs.field(default=(), converter=sequences)
    """Token sequences that do not come: where all but the last token is there, the last is forbidden."""
    allowed_ids: frozenset[int] | None = attrs.field(default=None, converter=_some_ids)
    """The only tokens that may come, EOS among them if it may; None allows all."""
    grammar: Grammar | None = None
    """What the new text must be a sentence of; needs ``eos_ids``."""
    processors: tuple[Processor, ...] = attrs.field(default=(), converter=_rules)
    """More rules about the next token, in their order."""
    logprobs: int | None = None
    """Report the log-probability of each token and of this many likeliest ones; None reports nothing."""
    logprobs_of: LogprobsOf = "raw"
    """``raw``: the target's own law, before any setting. ``processed``: the law that is really sampled from, after
    processors, temperature and filters; at temperature 0 a point mass."""
    ends: Callable[[tuple[int, ...]], bool] | None = None
    """A host's own stopping rule, asked after every new token with all of them; None never stops."""
    active: tuple[Processor, ...] = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(lambda self: built_in(self), takes_self=True)
    )
    """All processors of this request, those that its settings make included."""

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
        count: Any = self.logprobs
        if count is not None and not (isinstance(count, int | np.integer) and count >= 0):
            raise ContractError(f"logprobs is {count!r}; allowed: an integer >= 0, or None for none")
        if self.logprobs_of not in ("raw", "processed"):
            raise ContractError(f"logprobs_of is {self.logprobs_of!r}; allowed: raw, processed")
        self.sampling()

    def sampling(self) -> Sampling:
        """The sampling parameters of this request as a batch of one."""
        return Sampling.of(1, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p)


@attrs.frozen
class ArmStats:
    """How often one draft was used and how well it did; committed tokens only."""

    pulls: int = 0
    """Steps that used it."""
    drafted: int = 0
    """Draft tokens offered, counted up to where EOS, stop or budget cut the step."""
    accepted: int = 0
    """Draft tokens committed."""
    seconds: float = 0.0
    """Of the steps that used it, but for a request's first one, which reads the prompt."""
    emitted: int = 0
    """Tokens that those steps committed."""
    shadow_seconds: float = 0.0
    """Of scoring it on steps that others played."""
    score: float | None = None
    """What the selector gave its best arm when it could last be played; with ``cht`` expected tokens per second.
    None if it never could."""

    def add(self, drafted: int, accepted: int, emitted: int = 0, seconds: float = 0.0) -> ArmStats:
        """The counts with one more step; ``emitted`` and ``seconds`` 0 for a first one."""
        return attrs.evolve(
            self,
            pulls=self.pulls + 1,
            drafted=self.drafted + drafted,
            accepted=self.accepted + accepted,
            emitted=self.emitted + emitted,
            seconds=self.seconds + seconds,
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Measured over the steps that used it; None without any."""
        return self.emitted / self.seconds if self.seconds > 0 else None


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
    selector_seconds: float = 0.0
    """Of choosing and learning, in all steps."""
    lost: Mapping[str, str] = attrs.field(factory=dict)
    """Drafts that failed and were left out from then on, with the reason."""
    runs: tuple[int, ...] = ()
    """Steps with a draft by the number of its tokens that were committed."""

    @property
    def speedup_estimate(self) -> float | None:
        """``tokens_per_second`` over ``plain_tokens_per_second``: above 1 drafts paid; None where nothing is known."""
        plain = self.plain_tokens_per_second
        return self.tokens_per_second / plain if plain else None

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
    origins: tuple[str, ...] = ()
    """Where each token came from: the name of the draft that proposed it, or ``target``."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One a token if the request asked for them, else none."""


@attrs.frozen
class Chunk:
    """What one step added to the output."""

    text: str
    """Text that is certain by now: no half characters, no part of a possible stop string."""
    token_ids: tuple[int, ...]
