"""Which probes there are: combinations of vocabulary, dtype, shape of the logits, temperature and filters."""

from __future__ import annotations

import attrs

from flashspec_conformance.case import Knobs
from flashspec_conformance.law.fixtures import SHAPES
from flashspec_conformance.subject import DTYPES, FILTERS, PROPOSALS, Subject

WARM, HOT = 0.7, 1.3
FILTERED = {"top_k": Knobs(WARM, top_k=20), "top_p": Knobs(HOT, top_p=0.9), "min_p": Knobs(WARM, min_p=0.02)}
FINE, COARSE = 1 << 12, 1 << 18
"""Grains: 9e-13 and 6e-11 in units of probability."""


@attrs.frozen
class Extent:
    """How much is asked for."""

    tiny: int
    """Vocabulary where every draft is tried."""
    small: int
    """Vocabulary where every CDF edge is looked for."""
    tiles: tuple[int, ...]
    """Vocabularies around tile edges."""
    large: tuple[int, ...]
    """Real vocabularies, at sampled edges."""
    grain: int
    """Width of the brackets around the edges of whole rows, in units of 2**-52."""


QUICK = Extent(17, 65, (1025,), (), COARSE)
FULL = Extent(33, 257, (1023, 1024, 1025, 2048, 3001), (32_000, 128_256, 151_936), FINE)
EXTENTS = {"quick": QUICK, "full": FULL}


@attrs.frozen
class Setting:
    """One combination for the target rows, and the drafter's own parameters."""

    vocab: int
    dtype: str
    shape: str = "plain"
    knobs: Knobs = Knobs(WARM)
    masked: bool = False
    drafter: Knobs = Knobs(HOT)
    edges: int = 120
    """Edges looked for where the vocabulary is large."""

    def name(self, *first: str) -> str:
        """The id of a probe."""
        switched = [name if value is True else f"{name}{value:g}" for name, value in self.filters.items()]
        parts = [f"V{self.vocab}", self.dtype, self.shape, f"T{self.knobs.temperature:g}"]
        return "-".join([*first, *parts, *switched])

    @property
    def filters(self) -> dict[str, float | bool]:
        """The filters of the target rows that are not switched off."""
        k = self.knobs
        given = {"top_k": k.top_k, "top_p": k.top_p, "min_p": k.min_p, "allowed": self.masked}
        off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "allowed": False}
        return {name: value for name, value in given.items() if value != off[name]}


def other(temperature: float) -> float:
    """The drafter's temperature is never the target's."""
    return HOT if temperature == WARM else WARM


def sampled(subject: Subject, extent: Extent) -> list[Setting]:
    """Of ``sample``."""
    base, small = subject.dtype, extent.small
    out = [Setting(extent.tiny, d, knobs=Knobs(t)) for d in subject.values(DTYPES, "dtype") for t in (WARM, HOT)]
    out += [Setting(small, base, shape, Knobs(t)) for shape, t in zip(SHAPES[1:], (HOT, WARM) * 2, strict=True)]
    out += [Setting(v, base, knobs=Knobs(HOT)) for v in (1, 2, 4)]
    out += [Setting(small, base, shape, *_filter(f)) for f in _filters(subject) for shape in ("plain", "ties")]
    if len(_filters(subject)) > 1:
        out.append(Setting(small, base, "holes", *_every_filter(subject)))
    out += [Setting(v, base, "holes" if v % 2 else "plain", Knobs(HOT), edges=40) for v in extent.tiles]
    kinds = (("flat", HOT, 160), ("plain", WARM, 60), ("plain", WARM, 200))
    for v, (shape, t, edges) in zip(extent.large, kinds, strict=False):
        out.append(Setting(v, base, shape, Knobs(t), edges=edges))
    if extent.large and _narrow(subject) != base:
        out.append(Setting(extent.large[-1], _narrow(subject), knobs=Knobs(HOT), edges=100))
    if extent.large and "top_p" in _filters(subject):
        out.append(Setting(extent.large[-1], base, "peaked", *_filter("top_p"), edges=60))
    return out


def judged(subject: Subject, kind: str, extent: Extent) -> list[Setting]:
    """Of the token rule with one draft."""
    base, small = subject.dtype, extent.small
    narrow = _narrow_drafter(subject, HOT)
    out = [
        Setting(extent.tiny, d, knobs=Knobs(t), drafter=Knobs(other(t)))
        for d in subject.values(DTYPES, "dtype")
        for t in (WARM, HOT)
    ]
    out += [Setting(extent.tiny, base, shape, Knobs(HOT), drafter=Knobs(WARM)) for shape in SHAPES[1:]]
    out += [Setting(small, base, "plain", *_filter(f), narrow) for f in _filters(subject)]
    if len(_filters(subject)) > 1:
        knobs, masked = _every_filter(subject)
        out.append(Setting(small, base, "ties", knobs, masked, attrs.evolve(knobs, temperature=WARM)))
    if kind == "dense" and narrow.top_k == 0:
        return out
    out += [Setting(v, base, "holes", Knobs(WARM), drafter=narrow, edges=24) for v in extent.tiles]
    for v, t, edges in zip(extent.large, (WARM, HOT, WARM), (80, 16, 60), strict=False):
        out.append(Setting(v, base, knobs=Knobs(t), drafter=_narrow_drafter(subject, other(t)), edges=edges))
    return out


def chained(subject: Subject, kind: str, extent: Extent) -> list[Setting]:
    """Of the block and the path rule with two drafts; every row costs, so the largest vocabulary comes once."""
    base, narrow = subject.dtype, _narrow_drafter(subject, WARM)
    out = [Setting(extent.tiny, base, knobs=Knobs(HOT), drafter=Knobs(WARM))]
    out += [Setting(extent.small, base, "holes", drafter=_narrow_drafter(subject, HOT))]
    if kind == "dense" and narrow.top_k == 0:
        return out
    heaviest = kind in ("none", subject.values(PROPOSALS, "proposal")[-1])
    vocabularies = (*extent.tiles[-1:], *extent.large[:1], *(extent.large[-1:] if heaviest else ()))
    return out + [Setting(v, base, knobs=Knobs(HOT), drafter=narrow, edges=10) for v in vocabularies]


def _narrow(subject: Subject) -> str:
    """A 16-bit dtype where one is declared: few distinct logits, so many ties."""
    return next((d for d in ("bfloat16", "float16") if subject.declares(f"dtype:{d}")), subject.dtype)


def _narrow_drafter(subject: Subject, temperature: float) -> Knobs:
    """A drafter whose law has few tokens, so that all its drafts can be tried; whole where it cannot be cut."""
    return Knobs(temperature, 24 if "top_k" in _filters(subject) else 0)


def _filters(subject: Subject) -> tuple[str, ...]:
    return subject.values(FILTERS, "filter")


def _filter(name: str) -> tuple[Knobs, bool]:
    return FILTERED.get(name, Knobs(HOT)), name == "allowed"


def _every_filter(subject: Subject) -> tuple[Knobs, bool]:
    k, p, m = (f in _filters(subject) for f in ("top_k", "top_p", "min_p"))
    return Knobs(HOT, 40 if k else 0, 0.95 if p else 1.0, 0.01 if m else 0.0), "allowed" in _filters(subject)
