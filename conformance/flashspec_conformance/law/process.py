"""Probes in a process of their own: a backend that hangs or dies costs one probe, not the certificate."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from flashspec.registry import get_backend
from flashspec_conformance.law.measure import Result, measure
from flashspec_conformance.law.probes import probes
from flashspec_conformance.law.settings import EXTENTS
from flashspec_conformance.subject import Subject

PATIENCE = 2
"""Probes that may hang or crash before the rest is given up: each costs a new process and its time."""
Tell = Callable[[int, str], None]


def run_probes(
    target: str, device: str, extent: str, ids: Sequence[str], limit: float, tell: Tell = lambda place, name: None
) -> list[Result]:
    """The results of some probes, in order; ``tell`` hears of each before it starts.

    ``limit`` is in seconds, for one probe. After ``PATIENCE`` lost processes the rest is not run, and says so.
    """
    results: list[Result] = []
    lost = 0
    while len(results) < len(ids) and lost < PATIENCE:
        done = len(results)
        results += _one_process(target, device, extent, ids[done:], limit, partial(_told, tell, done))
        lost += 1
    return [*results, *(Result(i, message=f"not run: {PATIENCE} probes were lost") for i in ids[len(results) :])]


def _told(tell: Tell, done: int, place: int, name: str) -> None:
    tell(done + place, name)


def _one_process(target: str, device: str, extent: str, ids: Sequence[str], limit: float, tell: Tell) -> list[Result]:
    """Results until the process is lost; the last one then says how."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    child = context.Process(target=_work, args=(theirs, target, device, extent, list(ids)), daemon=True)
    child.start()
    theirs.close()
    results: list[Result] = []
    try:
        for place, name in enumerate(ids):
            tell(place, name)
            found = _receive(mine, child, limit)
            results.append(Result(name, message=f"the process {found}") if isinstance(found, str) else found)
            if isinstance(found, str):
                break
    finally:
        child.kill()
        child.join()
        mine.close()
    return results


def _receive(pipe: Connection, child: BaseProcess, limit: float) -> Result | str:
    if not pipe.poll(limit):
        return f"did not finish within {limit:g} seconds"
    try:
        found: Result = pipe.recv()
    except EOFError:
        child.join()
        return f"ended with status {child.exitcode}"
    return found


def _work(pipe: Connection, target: str, device: str, extent: str, ids: list[str]) -> None:
    """The child: Ctrl-C is the parent's business, and what the backend prints must not get into a report."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    subject = Subject(target, get_backend(target), device)
    known = {p.id: p for p in probes(subject, EXTENTS[extent])}
    for name in ids:
        pipe.send(measure(subject, known[name]))
