"""Many independent requests of the law fixture as one call, drafts drawn from the very streams that verify reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from flashspec import rng
from flashspec.contract import Array, Domain, OneHot, Padded, Proposal, Sampling, Sparse, Stream
from flashspec_conformance import statistics
from flashspec_conformance.build import host, record_dtype
from flashspec_conformance.case import F64, HostVerdict, Knobs
from flashspec_conformance.chain import GAMMA, VOCABULARY, Chain, Levels, Table, chain, choose, rows_after
from flashspec_conformance.subject import Subject

Ints = npt.NDArray[np.int64]
DRAWS = {"onehot": 48_000, "sparse": 16_000, "dense": 16_000}
"""Requests of a trial: enough for 10,000 second tokens at the acceptance of each kind."""
LENGTH = 4
"""Tokens that a request of several rounds emits."""
FIRST_POSITION = 7


@attrs.frozen(eq=False)
class Texts:
    """Requests of the fixture that have come to different places: what is committed, and the noise of this round."""

    fixture: Chain
    tokens: Ints
    """``[N, L]``; what lies behind ``length`` may be overwritten by drafts."""
    length: Ints
    """``[N]``."""
    stream: Stream

    def rows(self, levels: Levels, drafts: Ints) -> F64:
        """``[N, V]``: the rows after the committed tokens and some drafts."""
        text = np.concatenate([self.tokens, np.zeros_like(drafts)], axis=1)
        for j in range(drafts.shape[1]):
            text[np.arange(len(text)), self.length + j] = drafts[:, j]
        return rows_after(levels, text, self.length + drafts.shape[1])


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
            laws = rows_after(self.fixture.p, tokens, np.full(len(tokens), j))
            fresh = choose(laws, statistics.noise(len(tokens), 10 + j))
            tokens[:, j] = np.where(j < self.verdict.num_emitted, tokens[:, j], fresh)
        return tokens

    def joint(self) -> Counter[tuple[int, ...]]:
        """How often each completed sequence came out."""
        return Counter(map(tuple, self.completed().tolist()))


def fixture_of(subject: Subject, kind: str, temperature: float) -> Chain:
    """The fixture for a temperature; dense drafters have a filter of their own."""
    top_k = 3 if kind == "dense" and subject.declares("filter:top_k") else 0
    return chain(Knobs(temperature), Knobs(2.0 - temperature, top_k), record_dtype(subject))


def run(subject: Subject, kind: str, temperature: float, draws: int | None = None, method: str = "token") -> Trial:
    """Draft and verify ``DRAWS[kind]`` requests, or ``draws``. Dense drafts come from the backend's own ``sample``."""
    draws = DRAWS[kind] if draws is None else draws
    numbers, nothing = np.arange(draws), np.zeros((draws, 0), np.int64)
    stream = stream_of(numbers + FIRST_POSITION, numbers)
    fixture = fixture_of(subject, kind, temperature)
    texts = Texts(fixture, nothing, np.zeros(draws, np.int64), stream)
    return Trial(fixture, verify(subject, kind, texts, method))


def rounds(subject: Subject, kind: str, temperature: float, draws: int, method: str) -> tuple[Chain, Ints]:
    """The fixture and ``[N, LENGTH]`` tokens, committed round after round.

    The position of a request grows by what it has committed; nothing else tells one round from the
    next. Drafts are drawn with noise keyed by the round (RND-2, BLK-4).
    """
    fixture = fixture_of(subject, kind, temperature)
    tokens, length = np.zeros((draws, LENGTH), np.int64), np.zeros(draws, np.int64)
    while (active := np.flatnonzero(length < LENGTH)).size:
        stream = stream_of(length[active] + FIRST_POSITION, active)
        texts = Texts(fixture, tokens[active], length[active], stream)
        verdict = verify(subject, kind, texts, method)
        for j in range(GAMMA + 1):
            kept = (j < verdict.num_emitted) & (length[active] + j < LENGTH)
            tokens[active[kept], length[active[kept]] + j] = verdict.tokens[kept, j]
        assert np.all(verdict.num_emitted >= 1), "a request with a law in every row emitted nothing"
        length[active] = np.minimum(length[active] + verdict.num_emitted, LENGTH)
    return fixture, tokens


def verify(subject: Subject, kind: str, texts: Texts, method: str) -> HostVerdict:
    """One round: draft, judge, and bring the verdict to the host."""
    drafts, proposal = DRAFTERS[kind](subject, texts)
    levels = texts.fixture.target_logits
    rows = np.stack([texts.rows(levels, drafts[:, :j]) for j in range(GAMMA + 1)], axis=1)
    verdict = subject.backend.verify(
        subject.put(rows, record_dtype(subject)),
        subject.put(drafts, "int64"),
        proposal,
        Padded(),
        Sampling.of(len(rows), temperature=texts.fixture.target_knobs.temperature),
        texts.stream,
        method,
    )
    return host(subject, verdict)


def stream_of(positions: Ints, sequences: Ints) -> Stream:
    """The streams of requests by position and number; all have the suite's seed."""
    seeds = np.full(len(positions), statistics.FIRST_SEED, np.uint64)
    return Stream(seeds, positions.astype(np.uint32), sequences.astype(np.uint32))


def _host_drafts(texts: Texts) -> Ints:
    drafts = np.zeros((len(texts.tokens), 0), np.int64)
    for j in range(GAMMA):
        uniforms = rng.unit64(rng.bits(texts.stream, Domain.DRAFT, j))
        drafts = np.concatenate([drafts, choose(texts.rows(texts.fixture.q, drafts), uniforms)[:, None]], axis=1)
    return drafts


def _onehot(subject: Subject, texts: Texts) -> tuple[Ints, Proposal]:
    return _host_drafts(texts), OneHot()


def _sparse(subject: Subject, texts: Texts) -> tuple[Ints, Proposal]:
    drafts = _host_drafts(texts)
    laws = np.stack([texts.rows(texts.fixture.q, drafts[:, :j]) for j in range(GAMMA)], axis=1)
    ids = np.broadcast_to(np.arange(VOCABULARY), laws.shape)
    return drafts, Sparse(subject.put(ids, "int64"), subject.put(np.log(laws), record_dtype(subject)))


def _dense(subject: Subject, texts: Texts) -> tuple[Ints, Proposal]:
    draws, own = len(texts.tokens), texts.fixture.draft_knobs
    sampling = Sampling.of(draws, temperature=own.temperature, top_k=own.top_k)
    drafts, steps = np.zeros((draws, 0), np.int64), []
    for j in range(GAMMA):
        logits: Array = subject.put(texts.rows(texts.fixture.draft_logits, drafts), record_dtype(subject))
        sample = subject.backend.sample(logits, sampling, texts.stream.draw(Domain.DRAFT, j))
        steps.append(sample.proposal)
        drafts = np.concatenate([drafts, subject.get(sample.tokens)[:, None].astype(np.int64)], axis=1)
    return drafts, subject.backend.concat(steps)


DRAFTERS: dict[str, Callable[[Subject, Texts], tuple[Ints, Proposal]]] = {
    "onehot": _onehot,
    "sparse": _sparse,
    "dense": _dense,
}


def expect(test: statistics.Test, alpha: float, what: str) -> None:
    """Fail where a test rejects."""
    assert test.p_value >= alpha, f"{what}: p-value {test.p_value:.3g} < {alpha:g}, statistic {test.statistic:.5g}"


def expect_table(counts: Counter[tuple[int, ...]], table: Table, what: str) -> None:
    """The chi-square gate, with the worst cells told."""
    test = statistics.chi_square(counts, table)
    if test.p_value < statistics.CHI_ALPHA:
        total = counts.total()
        cells = set(counts) | set(table)
        worst = sorted(cells, key=lambda c: (-abs(counts[c] / total - table.get(c, 0.0)), c))[:4]
        told = "; ".join(f"{c}: {counts[c] / total:.4f} for {table.get(c, 0.0):.4f}" for c in worst)
        expect(test, statistics.CHI_ALPHA, f"{what} ({told})")
