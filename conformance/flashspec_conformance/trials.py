"""Many independent requests of the law fixture as one call, drafts drawn from the very streams that verify reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from flashspec import rng
from flashspec.contract import Domain, OneHot, Padded, Proposal, Sampling, Sparse, Stream
from flashspec_conformance import statistics
from flashspec_conformance.build import host, record_dtype
from flashspec_conformance.case import F64, HostVerdict, Knobs
from flashspec_conformance.chain import GAMMA, VOCABULARY, Chain, Table, chain, choose
from flashspec_conformance.subject import Subject

Ints = npt.NDArray[np.int64]
DRAWS = {"onehot": 48_000, "sparse": 16_000, "dense": 16_000}
"""Requests of a trial: enough for 10,000 second tokens at the acceptance of each kind."""


@attrs.frozen(eq=False)
class Trial:
    """A fixture and what came out for the requests of a trial."""

    fixture: Chain
    verdict: HostVerdict

    def emissions(self) -> Counter[tuple[int, ...]]:
        """How often each emission came out."""
        tokens, emitted = self.verdict.tokens, self.verdict.num_emitted
        return Counter(tuple(row[:n]) for row, n in zip(tokens.tolist(), emitted.tolist(), strict=True))

    def completed(self) -> Ints:
        """``[N, gamma + 1]``: emitted tokens, then tokens of the true target with the suite's own noise."""
        tokens = np.array(self.verdict.tokens, np.int64)
        for j in range(GAMMA + 1):
            laws = at(self.fixture.p[j], tokens[:, :j])
            fresh = choose(laws, statistics.noise(len(tokens), 10 + j))
            tokens[:, j] = np.where(j < self.verdict.num_emitted, tokens[:, j], fresh)
        return tokens

    def joint(self) -> Counter[tuple[int, ...]]:
        """How often each completed sequence came out."""
        return Counter(map(tuple, self.completed().tolist()))


def at(level: F64, prefix: Ints) -> F64:
    """``[N, V]``: the rows of a level for each prefix."""
    rows = level[tuple(prefix.T)] if prefix.shape[1] else np.broadcast_to(level, (len(prefix), VOCABULARY))
    return np.asarray(rows)


def run(subject: Subject, kind: str, temperature: float, draws: int | None = None) -> Trial:
    """Draft and verify ``DRAWS[kind]`` requests, or ``draws``. Dense drafts come from the backend's own ``sample``."""
    draws = DRAWS[kind] if draws is None else draws
    top_k = 3 if kind == "dense" and subject.declares("filter:top_k") else 0
    fixture = chain(Knobs(temperature), Knobs(2.0 - temperature, top_k), record_dtype(subject))
    numbers = np.arange(draws)
    stream = Stream(
        np.full(draws, statistics.FIRST_SEED, np.uint64), (numbers + 7).astype(np.uint32), numbers.astype(np.uint32)
    )
    drafts, proposal = DRAFTERS[kind](subject, fixture, stream)
    rows = np.stack([at(fixture.target_logits[j], drafts[:, :j]) for j in range(GAMMA + 1)], axis=1)
    verdict = subject.backend.verify(
        subject.put(rows, record_dtype(subject)),
        subject.put(drafts, "int64"),
        proposal,
        Padded(),
        Sampling.of(draws, temperature=temperature),
        stream,
    )
    return Trial(fixture, host(subject, verdict))


def _host_drafts(fixture: Chain, stream: Stream) -> Ints:
    drafts = np.zeros((len(stream.seed), 0), np.int64)
    for j in range(GAMMA):
        uniforms = rng.unit64(rng.bits(stream, Domain.DRAFT, j))
        drafts = np.concatenate([drafts, choose(at(fixture.q[j], drafts), uniforms)[:, None]], axis=1)
    return drafts


def _onehot(subject: Subject, fixture: Chain, stream: Stream) -> tuple[Ints, Proposal]:
    return _host_drafts(fixture, stream), OneHot()


def _sparse(subject: Subject, fixture: Chain, stream: Stream) -> tuple[Ints, Proposal]:
    drafts = _host_drafts(fixture, stream)
    laws = np.stack([at(fixture.q[j], drafts[:, :j]) for j in range(GAMMA)], axis=1)
    ids = np.broadcast_to(np.arange(VOCABULARY), laws.shape)
    return drafts, Sparse(subject.put(ids, "int64"), subject.put(np.log(laws), record_dtype(subject)))


def _dense(subject: Subject, fixture: Chain, stream: Stream) -> tuple[Ints, Proposal]:
    draws, own = len(stream.seed), fixture.draft_knobs
    sampling = Sampling.of(draws, temperature=own.temperature, top_k=own.top_k)
    drafts, steps = np.zeros((draws, 0), np.int64), []
    for j in range(GAMMA):
        logits = subject.put(at(fixture.draft_logits[j], drafts), record_dtype(subject))
        sample = subject.backend.sample(logits, sampling, stream.draw(Domain.DRAFT, j))
        steps.append(sample.proposal)
        drafts = np.concatenate([drafts, subject.get(sample.tokens)[:, None]], axis=1)
    return drafts, subject.backend.concat(steps)


DRAFTERS: dict[str, Any] = {"onehot": _onehot, "sparse": _sparse, "dense": _dense}


def expect(test: statistics.Test, alpha: float, what: str) -> None:
    """Fail where a test rejects."""
    assert test.p_value >= alpha, f"{what}: p-value {test.p_value:.3g} < {alpha:g}, statistic {test.statistic:.5g}"


def expect_table(counts: Counter[tuple[int, ...]], table: Table, what: str) -> None:
    """The chi-square gate, with the worst cells told."""
    test = statistics.chi_square(counts, table)
    if test.p_value < statistics.CHI_ALPHA:
        total = counts.total()
        cells = set(counts) | set(table)
        worst = sorted(cells, key=lambda c: -abs(counts[c] / total - table.get(c, 0.0)))[:4]
        told = "; ".join(f"{c}: {counts[c] / total:.4f} for {table.get(c, 0.0):.4f}" for c in worst)
        expect(test, statistics.CHI_ALPHA, f"{what} ({told})")
