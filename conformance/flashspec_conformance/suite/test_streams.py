"""Counter-based randomness: clauses RNG."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from flashspec.contract import Domain, Stream
from flashspec_conformance import generate
from flashspec_conformance.build import knobs_sampling, verify
from flashspec_conformance.case import Case, Knobs, Request
from flashspec_conformance.compare import Tally, check
from flashspec_conformance.probes import flat, request
from flashspec_conformance.subject import Subject
from flashspec_spec.philox import bits

pytestmark = pytest.mark.needs("method:token")

WORDS = (0, 1, 0x243F6A88, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
SEEDS = (0, 1, 0xFFFF_FFFF, 0x1_0000_0000, 0xA409_3822_299F_31D0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def _streams() -> list[tuple[int, int, int]]:
    """Seeds, positions and sequences at the edges of their types, signed ones included."""
    return [(seed, WORDS[n % 6], WORDS[(n // 2 + k) % 6]) for n, seed in enumerate(SEEDS) for k in range(3)]


def _streamed(rows: object, drafts: tuple[int, ...], stream: tuple[int, int, int], knobs: Knobs) -> Request:
    seed, position, sequence = stream
    return attrs.evolve(request(rows, drafts, knobs=knobs), seed=seed, position=position, sequence=sequence)


@pytest.mark.clause("RNG-1", "RNG-2", "RNG-3", "UNI-2")
def test_sampling_integers_are_philox_words(subject: Subject) -> None:
    """A row of 2048 equal tokens shows the high 11 bits of the bonus integer of every stream."""
    drawn = [_streamed(np.zeros((1, 2048)), (), s, Knobs(0.7)) for s in _streams()]
    check(subject, Case(tuple(drawn), 2048, subject.dtype, stream=True), exact=True)


@pytest.mark.clause("RNG-1", "RNG-2", "RNG-3", "UNI-1")
@pytest.mark.parametrize("share", [2, 4])
def test_accept_coins_are_philox_words(subject: Subject, share: int) -> None:
    """Chains of eight drafts of probability 1/2 or 1/4 show the coins of every place and stream."""
    rows = np.stack([flat(6, *range(share))] * 9)
    judged = [_streamed(rows, (0,) * 8, s, Knobs(1.3)) for s in _streams()]
    check(subject, Case(tuple(judged), 6, subject.dtype, stream=True), exact=True)


@pytest.mark.clause("RNG-3", "ACC-3", "RES-1", "BON-1", "RND-2")
def test_residual_and_bonus_draws_have_their_own_domains(subject: Subject) -> None:
    """Wide flat rows show which domain and index each final token came from."""
    rows = np.zeros((4, 1500))
    rows[:, 7] = 7.25
    judged = [_streamed(rows, (7, 7, 7), s, Knobs(1.0)) for s in _streams()]
    tally = Tally()
    got = check(subject, Case(tuple(judged), 1500, subject.dtype, stream=True), tally=tally)
    tally.check()
    assert len(set(got.num_accepted.tolist())) > 1


@pytest.mark.clause("RNG-3", "RNG-2")
@pytest.mark.parametrize("domain", list(Domain), ids=lambda d: d.name)
@pytest.mark.parametrize("index", [0, 1, 7])
def test_sample_reads_the_domain_and_index_it_is_given(subject: Subject, domain: Domain, index: int) -> None:
    """``sample`` with a draw of any domain and index takes that block's integer."""
    streams = _streams()
    stream = Stream.of([s for s, _, _ in streams], [p for _, p, _ in streams], [q for _, _, q in streams])
    logits = subject.put(np.zeros((len(streams), 2048)), subject.dtype)
    sampling = knobs_sampling([Knobs(0.7)] * len(streams))
    drawn = subject.backend.sample(logits, sampling, stream.draw(domain, index))
    expected = [bits(*s, domain, index) >> 53 for s in streams]
    assert subject.get(drawn.tokens).tolist() == expected


@pytest.mark.clause("RNG-4")
@pytest.mark.parametrize("seed", range(6))
def test_neighbours_and_order_do_not_matter(subject: Subject, layout: str, seed: int) -> None:
    """Every request of a batch gets the same alone, in reverse order, and beside a copy of itself."""
    case = generate.case(np.random.default_rng(seed), subject, (6, 4, 33), subject.dtype, layout)
    whole = verify(subject, case)
    backwards = verify(subject, case.permuted(tuple(range(5, -1, -1))))
    doubled = verify(subject, case.permuted((0, 0, 1, 1)))
    for b in range(6):
        alone = verify(subject, attrs.evolve(case.alone(b), width=case.drafts_width))
        assert whole.row(b) == alone.row(0) == backwards.row(5 - b)
        assert np.array_equal(whole.logprobs[b], alone.logprobs[0])
    assert [doubled.row(b) for b in range(4)] == [whole.row(b) for b in (0, 0, 1, 1)]
    check(subject, case, tally=Tally())


@pytest.mark.clause("RNG-3", "RNG-4")
def test_the_sequence_number_separates_requests(subject: Subject) -> None:
    """Equal seeds and positions with different sequence numbers give different tokens, as in the spec."""
    drawn = [_streamed(np.zeros((1, 2048)), (), (5, 9, sequence), Knobs(1.0)) for sequence in range(16)]
    got = check(subject, Case(tuple(drawn), 2048, subject.dtype, stream=True), exact=True)
    assert len(set(got.tokens[:, 0].tolist())) > 8
