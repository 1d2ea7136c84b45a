"""Recorded traces as courses: the files of ``flashspec generate --trace``, one or several after another.

A file is JSON lines, one a step. A line with ``request`` begins a request: schema, drafts, lengths,
tiers and costs. Every line has ``places``: the tokens committed, each with what every free draft
proposed just before it, as ``[context, token, token, ...]``. Files may be joined end to end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from flashspec.errors import ContractError
from flashspec.selectors.course import Course
from flashspec.selectors.types import F64, Arms

SCHEMA = 1
ADVICE = "record it again with flashspec generate --trace"


@attrs.frozen(eq=False)
class Trace:
    """A file's requests one after another."""

    name: str
    arms: Arms
    cost: F64
    """``[M]``: seconds per step, as recorded."""
    course: Course
    """Segments are the requests."""
    left_out: tuple[str, ...]
    """Drafts that were not scored at every place, so that no other policy could be replayed with them."""


def load(path: str | Path) -> Trace:
    """Read a trace.

    Raises:
        ContractError: a file that cannot be read, is no trace, has another schema, or was cut short;
            requests of different drafts, lengths or costs. It names file and line.
    """
    source = Path(path)
    try:
        lines = source.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"{source} cannot be read ({error}); name a trace file") from error
    requests: list[list[Mapping[str, Any]]] = []
    heading: Mapping[str, Any] | None = None
    for number, line in enumerate(lines, start=1):
        where = f"{source}, line {number}"
        step = _parse(line, where)
        if "request" in step:
            given = _heading(step["request"], where)
            if heading is not None and any(given[key] != heading[key] for key in ("lengths", "tiers", "cost")):
                raise ContractError(f"{where} has other drafts or costs than the requests before; give it a file")
            heading = heading or given
            requests.append([])
        if heading is None:
            raise ContractError(f"{where} has no request before it; cut short at its beginning? {ADVICE}")
        requests[-1].extend(step["places"])
    if heading is None or not all(requests):
        raise ContractError(f"{source} holds no step; {ADVICE}")
    return _built(source.stem, heading, requests)


def _parse(line: str, where: str) -> Mapping[str, Any]:
    try:
        step = json.loads(line)
    except json.JSONDecodeError as error:
        raise ContractError(f"{where} is not JSON ({error}); cut short? {ADVICE}") from error
    if not isinstance(step, dict) or not isinstance(step.get("places"), list):
        raise ContractError(f"{where} has no places; {ADVICE}")
    return step


def _heading(given: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(given, dict) or given.get("schema") != SCHEMA:
        schema = given.get("schema") if isinstance(given, dict) else None
        raise ContractError(f"{where} has trace schema {schema}; allowed: {SCHEMA}; {ADVICE}")
    if given["temperature"] > 0 and given["method"] != "path":
        raise ContractError(
            f"{where} was sampled at temperature {given['temperature']} with method {given['method']}: another policy "
            "would have emitted another text; record with --temperature 0 or --method path"
        )
    return given


def _built(name: str, heading: Mapping[str, Any], requests: Sequence[Sequence[Mapping[str, Any]]]) -> Trace:
    lengths, tiers = heading["lengths"], heading["tiers"]
    scored = [d for d in lengths if all(d in place["drafts"] for places in requests for place in places)]
    arms = Arms.of({d: lengths[d] for d in scored}, {d: tiers[d] for d in scored})
    cost = np.array([float(heading["cost"][arm]) for arm in arms.names])
    segment = np.repeat(np.arange(len(requests)), [len(places) for places in requests])
    shape = (len(arms.drafts), len(segment))
    accepted, offered, context = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    at = 0
    for places in requests:
        text = [int(place["token"]) for place in places]
        for here, place in enumerate(places):
            for d, draft in enumerate(scored, start=1):
                bucket, *tokens = place["drafts"][draft]
                room = tokens[: len(text) - here - 1]
                context[d, at], offered[d, at] = bucket, min(len(room), arms.longest)
                accepted[d, at] = min(_leading(room, text[here:]), arms.longest)
            at += 1
    left = tuple(d for d in lengths if d not in scored)
    return Trace(name, arms, cost, Course(at, segment, accepted, context, offered), left)


def _leading(proposed: Sequence[int], text: Sequence[int]) -> int:
    """How many leading tokens agree."""
    for count, (token, real) in enumerate(zip(proposed, text, strict=False)):
        if token != real:
            return count
    return min(len(proposed), len(text))


def joined(name: str, traces: Sequence[Trace]) -> Trace:
    """Traces one after another as one text, each of them a segment.

    Raises:
        ContractError: traces of different drafts or costs.
    """
    first = traces[0]
    for other in traces[1:]:
        if other.arms != first.arms or not np.array_equal(other.cost, first.cost):
            raise ContractError(
                f"{other.name} has other drafts or costs than {first.name}; replay traces of one recording together"
            )
    parts = [trace.course for trace in traces]
    segment = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    arrays = [np.concatenate([getattr(part, key) for part in parts], 1) for key in ("accepted", "context", "offered")]
    return Trace(name, first.arms, first.cost, Course(len(segment), segment, *arrays), first.left_out)
