"""The draft pool as a proposer of the V1 runner: ``"method": "custom_class"`` in ``--speculative-config``.

Every step each request chooses a draft and a length, or none, by expected tokens over measured seconds; what the
engine committed is what the next choice knows. Drafts are copied from the text, so the engine judges them as
one-hot and its output follows the target's law whatever is chosen. State is one value, :class:`State`, and
:func:`propose` maps it to the next one; :class:`Pool` is the object that the engine wants to call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from flashspec import selectors
from flashspec.decoding.metrics import Metrics
from flashspec.drafts import NGram, Suffix
from flashspec.drafts.protocol import Draft, Drafter
from flashspec.errors import ContractError
from flashspec.integrations.vllm import metrics, rows
from flashspec.integrations.vllm.pace import Pace, Step
from flashspec.integrations.vllm.rows import Kit, Row, Tokens
from flashspec.integrations.vllm.settings import Settings
from flashspec.selectors import FREE, Arms
from flashspec.selectors.types import Observation

KINDS: Mapping[str, type[NGram | Suffix]] = {"ngram": NGram, "suffix": Suffix}
KEPT = 3
"""States that are kept for each place in the batch: most are of requests that wait, were preempted or are over."""
EVERY = 1.0
"""Seconds between two reports."""
PROBE, OFTEN = 32, 2
"""Every so many steps one is made without drafts, and more often while their cost is not known yet: drafts can only
pay against it."""


@attrs.frozen(eq=False)
class State:
    """Everything that is carried from step to step."""

    rows: Mapping[int, Row] = attrs.field(factory=dict)
    """By numbers of their own, the latest used last."""
    places: tuple[int | None, ...] = ()
    """The numbers in the engine's order at the latest step; None for a request that sampled nothing."""
    step: int = 0
    pace: Pace = Pace()
    offered: int = 0
    """Draft tokens of the latest step."""
    metrics: Metrics = Metrics()


def kit(settings: Settings, longest: int, vocab: int) -> Kit:
    """Drafters, arms and selector.

    Raises:
        ContractError: a draft other than ``ngram``, ``ngram:N``, ``suffix`` or ``suffix:N``.
        UnknownName: an unknown selector.
    """
    drafters = tuple(_drafter(spec, longest) for spec in settings.drafts)
    arms = Arms.of({d.name: d.lengths for d in drafters}, {d.name: FREE for d in drafters})
    return Kit(drafters, arms, selectors.from_spec(settings.selector), vocab)


def _drafter(spec: str, longest: int) -> Drafter:
    kind, _, argument = spec.partition(":")
    if kind not in KINDS or not (spec == kind or (argument.isdecimal() and int(argument))):
        raise ContractError(
            f"draft {spec!r}; allowed inside vLLM: {', '.join(KINDS)}, or one with its longest match, such as ngram:4"
        )
    made = KINDS[kind](spec)
    lengths = tuple(sorted({n for n in made.lengths if n < longest} | {longest}))
    return attrs.evolve(made, lengths=lengths, longest=int(argument) if argument else made.longest)


def propose(
    kit: Kit, state: State, texts: Sequence[Tokens | None], rooms: Sequence[int], seconds: float, kept: int
) -> tuple[State, list[list[int]]]:
    """The next state, and a draft for each row; none for a row without a text, which sampled nothing.

    Args:
        kit: what does not change.
        state: the latest.
        texts: each row's committed tokens, in arrays that nobody else changes.
        rooms: how many tokens may be offered to each row.
        seconds: since the latest offers were made.
        kept: how many rows' states are remembered.
    """
    places, held, seen = _commit(kit, state, texts)
    batch = sum(key is not None for key in places)
    done = _judged(places, seconds, [one for one in seen if one is not None])
    pace = state.pace.without() if done is None else state.pace.add(done)
    probe = state.step % (OFTEN if pace.lacks(batch) else PROBE) == 0
    drafts = dict[int, Mapping[int, Draft]]()
    for key in places:
        if key is not None and not rows.rests(held[key], state.step + 1):
            held[key], drafts[key] = rows.look(kit, held[key])
    cost = pace.of(kit.arms.length, max(1, batch))
    offers = [list[int]() for _ in places]
    for place, key in enumerate(places):
        if key is not None:
            room = 0 if probe else rooms[place]
            held[key], tokens = rows.choose(kit, held[key], drafts.get(key, {}), cost, room, state.step + 1)
            offers[place] = list(tokens)
    counted = state.metrics
    if done is not None:
        counted = metrics.count(counted, kit.arms, [one for one in seen if one is not None], seconds, pace.plain(done))
    rest = dict(list(held.items())[-kept:])
    return State(rest, places, state.step + 1, pace, sum(map(len, offers)), counted), offers


def _commit(
    kit: Kit, state: State, texts: Sequence[Tokens | None]
) -> tuple[tuple[int | None, ...], dict[int, Row], list[Observation | None]]:
    """The rows' numbers, all rows with the new texts, and what each learned."""
    held, places, seen = dict(state.rows), list[int | None](), list[Observation | None]()
    free = dict(state.rows)
    for place, text in enumerate(texts):
        if text is None:
            places.append(None)
            continue
        usual = state.places[place] if place < len(state.places) else None
        if usual in free and rows.belongs(free[usual], text):
            key: int | None = usual
        else:
            key = rows.find(free.items(), text)
        if key is None:
            key = max(held, default=-1) + 1
            row, told = rows.begin(kit, text), None
        else:
            row, told = rows.commit(kit, free.pop(key), text, state.step + 1)
            held.pop(key)
        held[key] = row
        places.append(key)
        seen.append(told)
    return tuple(places), held, seen


def _judged(places: Sequence[int | None], seconds: float, seen: Sequence[Observation]) -> Step | None:
    """The latest step, if it read no prompt and judged what was offered: every row was there before."""
    batch = len(places)
    return Step(seconds, batch, sum(one.offered for one in seen)) if 0 < batch == len(seen) else None


class Pool:
    """The engine's proposer. ``num_speculative_tokens`` is the longest draft."""

    def __init__(self, vllm_config: Any) -> None:
        model, parallel = vllm_config.model_config, vllm_config.parallel_config
        longest = int(vllm_config.speculative_config.num_speculative_tokens)
        self._kit = kit(Settings.of(os.environ), longest, int(model.get_vocab_size()))
        self._longest, self._limit = longest, int(model.max_model_len)
        self._kept = KEPT * int(vllm_config.scheduler_config.max_num_seqs)
        self._file = metrics.place(vllm_config.instance_id, parallel.data_parallel_rank)
        self._state = State()
        self._offered, self._told = time.perf_counter(), 0.0

    def load_model(self, target_model: Any) -> None:
        """Nothing is loaded: drafts are copied from the text."""

    def dummy_run(self, num_tokens: int, *rest: Any, **named: Any) -> None:
        """Nothing runs on the device."""

    def propose(
        self, sampled_token_ids: Any, num_tokens_no_spec: Any, token_ids_cpu: Any, slot_mappings: Any = None
    ) -> list[list[int]]:
        """A list of draft tokens for each row, empty where none pays; see vLLM's ``custom_class``."""
        now = time.perf_counter()
        counts = [int(n) for n in num_tokens_no_spec[: len(sampled_token_ids)]]
        texts = [
            np.array(token_ids_cpu[row, :count], np.int64) if sampled else None
            for row, (count, sampled) in enumerate(zip(counts, sampled_token_ids, strict=True))
        ]
        rooms = [max(0, min(self._longest, self._limit - count - 1)) for count in counts]
        self._state, offers = propose(self._kit, self._state, texts, rooms, now - self._offered, self._kept)
        if now - self._told > EVERY:
            metrics.write(self._file, self._state.metrics)
            self._told = now
        self._offered = time.perf_counter()
        return offers
