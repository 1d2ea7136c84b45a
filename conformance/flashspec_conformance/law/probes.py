"""From a setting to a probe: a request, the spec's exact numbers for it, and how it is judged.

Small vocabularies are extracted whole; large ones at some hundreds of CDF edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import attrs
import numpy as np

from flashspec_conformance import build, chain
from flashspec_conformance.case import I64, Knobs, Request
from flashspec_conformance.law import fixtures, judge, plans, settings
from flashspec_conformance.law.exact import Masses, Support
from flashspec_conformance.law.extract import Plan
from flashspec_conformance.law.plans import Place
from flashspec_conformance.law.settings import COARSE, HOT, WARM, Extent, Setting
from flashspec_conformance.subject import PROPOSALS, Subject

WHOLE = 300
"""Vocabularies up to this are extracted at every edge."""
MARKED = 12
"""Drafts whose own CDF edges are looked for at large vocabularies."""
NO_PROPOSAL = "none"


@attrs.frozen(eq=False)
class Work:
    """A probe made ready: what to extract, and how the result becomes a total variation."""

    plans: Sequence[Plan]
    judge: judge.Judge


@attrs.frozen(eq=False)
class Probe:
    """One entry of the certificate."""

    id: str
    method: str
    """``sample``, ``token``, ``block`` or ``path``."""
    proposal: str
    """``onehot``, ``sparse``, ``dense``, or ``none`` where no proposal is read."""
    setting: Setting
    prepare: Callable[[], Work]
    """Computes the spec's exact numbers, which takes seconds at large vocabularies."""
    grain: int = COARSE
    """Width of the brackets, in units of 2**-52."""


def probes(subject: Subject, extent: Extent) -> list[Probe]:
    """Every probe of what the backend declares."""
    kinds = subject.values(PROPOSALS, "proposal")
    methods = subject.warm_methods
    out = [sample_probe(s) for s in settings.sampled(subject, extent)]
    for kind in kinds if "token" in methods else ():
        out += [token_probe(subject, kind, s) for s in settings.judged(subject, kind, extent)]
    for method in methods:
        for kind in (NO_PROPOSAL,) if method == "path" else kinds:
            out += [fixture_probe(subject, method, kind, t) for t in (WARM, HOT)]
            if method != "token":
                out += [chain_probe(subject, method, kind, s) for s in settings.chained(subject, kind, extent)]
    return [attrs.evolve(p, grain=extent.grain) if p.setting.vocab <= WHOLE else p for p in out]


def sample_probe(setting: Setting) -> Probe:
    """Plain sampling of one row."""
    name = setting.name("sample")

    def prepare() -> Work:
        base = _request(setting, 1, name)
        (p,) = plans.target_places(base)
        plan = Plan(plans.prepared(base, ()), (), (p,), (_levels(setting, p, (), name),))
        return Work([plan], judge.sample_distance)

    return Probe(name, "sample", NO_PROPOSAL, setting, prepare)


def token_probe(subject: Subject, kind: str, setting: Setting) -> Probe:
    """One draft: every acceptance threshold, the residuals, the bonus row."""
    name = setting.name("token", kind)

    def prepare() -> Work:
        request = _proposed(subject, kind, setting, 2, name)
        p, last = plans.target_places(request)
        place = Place(p, plans.proposal_support(request, 0))
        drafts = fixtures.onehot_drafts(p.counts, name) if place.q is None else list(place.q)
        levels = (_levels(setting, p, drafts[:MARKED], name), _levels(setting, last, (), name))
        many = plans.token_plans(request, place, last, drafts, levels)
        return Work(_thinned(many, setting, place.q), judge.first_token(place.q))

    return Probe(name, "token", kind, setting, prepare)


def chain_probe(subject: Subject, method: str, kind: str, setting: Setting) -> Probe:
    """Two drafts at any vocabulary: thresholds, and the law of (accepted, last token) given the drafts."""
    name = setting.name(method, *_kind(kind))

    def prepare() -> Work:
        request = _proposed(subject, kind, setting, 3, name)
        *rows, last = plans.target_places(request)
        places = [Place(p, plans.proposal_support(request, j)) for j, p in enumerate(rows)]
        pairs = [(place.p.counts, place.q) for place in places]
        drafts = fixtures.sequences(pairs, 1 if setting.vocab > WHOLE else 4, name)
        marked = [*zip(*drafts, strict=True), ()]
        levels = tuple(_levels(setting, p, marked[j], f"{name}/{j}") for j, p in enumerate([*rows, last]))
        return Work([plans.PLANS[method](request, places, last, x, levels) for x in drafts], judge.outcomes(method))

    return Probe(name, method, kind, setting, prepare)


def fixture_probe(subject: Subject, method: str, kind: str, temperature: float) -> Probe:
    """The chain of V = 4 and two drafts whose rows depend on the prefix: the joint law of three tokens."""
    own, drafter = Knobs(temperature), Knobs(settings.other(temperature))
    setting = Setting(chain.VOCABULARY, subject.dtype, "chain", own, drafter=drafter)
    name = setting.name(method, *_kind(kind))

    def prepare() -> Work:
        fixture = chain.chain(own, drafter, subject.dtype)
        sequences = product(range(chain.VOCABULARY), repeat=chain.GAMMA)
        many = [_fixture_plan(fixture, method, kind, x, build.record_dtype(subject)) for x in sequences]
        return Work(many, judge.joint(method, _by_prefix(fixture.p), _by_prefix(fixture.q)))

    return Probe(name, method, kind, setting, prepare)


def _kind(kind: str) -> tuple[str, ...]:
    return () if kind == NO_PROPOSAL else (kind,)


def _request(s: Setting, length: int, name: str) -> Request:
    return fixtures.request(s.shape, length, s.vocab, s.dtype, s.knobs, s.masked, name)


def _proposed(subject: Subject, kind: str, s: Setting, length: int, name: str) -> Request:
    base = _request(s, length, name)
    if kind == "dense":
        return fixtures.with_dense(base, s.dtype, s.drafter, s.masked, name)
    return fixtures.with_sparse(base, build.record_dtype(subject), name) if kind == "sparse" else base


def _levels(s: Setting, p: Masses, marked: Sequence[int], name: str) -> I64:
    if s.vocab <= WHOLE:
        return plans.all_levels(s.vocab)
    return plans.some_levels(p, marked, s.edges, fixtures.generator(name))


def _thinned(many: list[Plan], s: Setting, q: Support | None) -> list[Plan]:
    """Ask for the bonus law once, and at large vocabularies for the two heaviest residuals only."""
    limit = len(many) if s.vocab <= WHOLE else 2
    weight = [(1 - float(m.thresholds[0])) * (1.0 if q is None else float(q[m.request.drafts[0]])) for m in many]
    chosen = set(sorted(range(len(many)), key=lambda b: -weight[b])[:limit])
    accepting = max(range(len(many)), key=lambda b: many[b].thresholds[0])
    return [
        attrs.evolve(m, draws=(m.draws[0] if b in chosen else None, m.draws[1] if b == accepting else None))
        for b, m in enumerate(many)
    ]


def _by_prefix(levels: chain.Levels) -> judge.Laws:
    return {prefix: level[prefix] for level in levels for prefix in np.ndindex(level.shape[:-1])}


def _fixture_plan(fixture: chain.Chain, method: str, kind: str, x: tuple[int, ...], record_dtype: str) -> Plan:
    request = fixtures.of_chain(fixture, kind, x, record_dtype)
    *rows, last = plans.target_places(request)
    places = [Place(p, plans.proposal_support(request, j)) for j, p in enumerate(rows)]
    levels = (plans.all_levels(chain.VOCABULARY),) * (chain.GAMMA + 1)
    return plans.PLANS[method](request, places, last, x, levels)
