"""A synthetic world for speculation, clocked by emitted tokens.

Exact decoding emits the same text whatever is selected, so acceptance is a property of a position in
the text: policies are compared by the time that they need for the same text, with the same luck.

Offset j of draft d at position s is accepted iff ``U[d, s+j-1] < b[d, s+j-1] * decay_d ** (j-1)``. An
n-gram draft is a two-state chain (inside a copied span or not); a model draft has a logit that drifts
as an AR(1) process, shared by all model drafts (hard text is hard for each). Domains change at random.
A step of draft d and length g costs ``1 + fixed_d + g * (each_d + verify)``; plain decoding costs 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from flashspec.errors import unknown_name
from flashspec.selectors import course, schedule
from flashspec.selectors.types import F64, FREE, I64, SHADOW, Arms, Bools

LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10)
CHEAP = 0.2
"""A draft whose forward costs more than this part of the target's is not scored without being played."""
DOMAINS = ("chat", "code", "edit")


@attrs.frozen
class Copying:
    """A draft that copies: acceptance inside and outside copied spans."""

    share: tuple[float, ...]
    """Per domain: part of the text inside spans."""
    span: tuple[float, ...]
    """Per domain: mean length of a span, in tokens."""
    inside: float = 0.97
    outside: float = 0.06


@attrs.frozen
class Modelling:
    """A draft that predicts: mean acceptance per domain."""

    mean: tuple[float, ...]


@attrs.frozen
class Drafter:
    """A synthetic draft."""

    name: str
    fixed: float
    """Cost of a step besides its tokens, in target forwards."""
    each: float
    """Cost of one drafted token."""
    kind: Copying | Modelling
    decay: float = 1.0
    """Factor on acceptance per offset."""


@attrs.frozen
class World:
    """Drafts and costs; the defaults are those of the published numbers of the design."""

    drafters: tuple[Drafter, ...] = (
        Drafter("ngram", 0.010, 0.0005, Copying((0.08, 0.38, 0.88), (6.0, 10.0, 25.0))),
        Drafter("head", 0.02, 0.045, Modelling((0.74, 0.62, 0.70)), 0.96),
        Drafter("small", 0.02, 0.11, Modelling((0.70, 0.84, 0.78))),
        Drafter("exit", 0.0, 0.30, Modelling((0.90, 0.90, 0.92))),
    )
    lengths: tuple[int, ...] = LENGTHS
    verify: float = 0.008
    segment: tuple[int, int] = (600, 1500)
    """Shortest and longest stay in a domain, in tokens."""
    spread: float = 0.9
    """Weight of the AR(1) process in a model draft's logit."""
    memory: float = 0.9
    """Coefficient of that process."""

    @property
    def domains(self) -> int:
        """How many domains there are."""
        kind = self.drafters[0].kind
        return len(kind.share if isinstance(kind, Copying) else kind.mean)

    def arms(self, tiers: Mapping[str, int] | None = None) -> Arms:
        """Every draft at every length; by default only copying drafts are scored when not played."""
        free = {d.name: FREE for d in self.drafters if isinstance(d.kind, Copying)}
        return Arms.of({d.name: self.lengths for d in self.drafters}, free if tiers is None else tiers)

    def tiers(self, feedback: str) -> dict[str, int]:
        """Tiers by what is observed besides own plays: "own" nothing, "ngram" copying drafts at every step,
        "shadow" those and, now and then, models of at most ``CHEAP`` forwards, "all" everything at every step.

        Raises:
            UnknownName: another word.
        """
        copying = {d.name: isinstance(d.kind, Copying) for d in self.drafters}
        free = {name: FREE for name, is_copying in copying.items() if is_copying}
        cheap = {d.name: SHADOW for d in self.drafters if d.each <= CHEAP}
        known: dict[str, dict[str, int]] = {
            "own": {},
            "ngram": free,
            "shadow": cheap | free,
            "all": dict.fromkeys(copying, FREE),
        }
        if feedback not in known:
            raise unknown_name("feedback", feedback, list(known))
        return known[feedback]

    def forward(self) -> F64:
        """``[D]``: time of one forward of each draft."""
        return np.array([0.0, *(d.each for d in self.drafters)])

    def cost(self, arms: Arms) -> F64:
        """``[M]``: time of a step of each arm, in target forwards."""
        fixed = np.array([0.0, *(d.fixed for d in self.drafters)])
        each = np.array([0.0, *(d.each for d in self.drafters)])
        return np.asarray(1.0 + fixed[arms.draft] + arms.length * (each[arms.draft] + self.verify))


@attrs.frozen(eq=False)
class Text:
    """What a text does to each draft; index 0 of a draft axis is plain decoding."""

    size: int
    """Tokens to emit; the arrays are longer by the longest draft."""
    domain: I64
    """``[L]``: index into the domains."""
    accepted: I64
    """``[D, L]``: leading run of accepted drafts, up to the longest length, of a block started there."""
    streak: I64
    """``[D, L]``: how many tokens before this place the draft would have proposed right, in a row."""

    def course(self, world: World) -> course.Course:
        """The text to be followed; copying drafts have their match streak as context."""
        copying = np.array([0, *(int(isinstance(d.kind, Copying)) for d in world.drafters)])
        return course.Course(self.size, self.domain, self.accepted, bucket(self.streak) * copying[:, None])


def text(world: World, seed: int, size: int, domain: int | None = None) -> Text:
    """A text of ``size`` tokens; ``domain`` keeps it in one domain. The seed goes to NumPy's PCG64."""
    rng = np.random.default_rng(seed)
    longest = max(world.lengths)
    length = size + 2 * longest + 2
    domains = _domains(world, rng, length) if domain is None else np.full(length, domain)
    drift = _drift(world.memory, rng.standard_normal(length))
    chance = np.zeros((len(world.drafters) + 1, length))
    for d, drafter in enumerate(world.drafters, 1):
        if isinstance(drafter.kind, Copying):
            inside = _spans(drafter.kind, domains, rng.random(length))
            chance[d] = np.where(inside, drafter.kind.inside, drafter.kind.outside)
        else:
            centres = np.array([_centre(mean, world.spread) for mean in drafter.kind.mean])
            chance[d] = 1.0 / (1.0 + np.exp(world.spread * drift - centres[domains]))
    luck = rng.random(chance.shape)
    decay = np.array([1.0, *(d.decay for d in world.drafters)])
    return Text(size, domains, _leading(luck, chance, decay, longest), _streaks(luck < chance))


def _domains(world: World, rng: np.random.Generator, length: int) -> I64:
    """Stays of uniform length; the next domain is any other one."""
    parts: list[I64] = []
    count, now = 0, int(rng.integers(world.domains))
    while count < length:
        stay = int(rng.integers(world.segment[0], world.segment[1] + 1))
        parts.append(np.full(stay, now))
        count, now = count + stay, (now + 1 + int(rng.integers(world.domains - 1))) % world.domains
    return np.concatenate(parts)[:length]


def _drift(memory: float, shocks: F64) -> F64:
    """A stationary AR(1) path of variance 1."""
    path, now, scale = np.empty_like(shocks), 0.0, np.sqrt(1.0 - memory * memory)
    for place, shock in enumerate(shocks):
        now = memory * now + scale * shock
        path[place] = now
    return path


def _spans(kind: Copying, domains: I64, luck: F64) -> Bools:
    """Inside a copied span or not, with the domain's share and mean length."""
    leave = 1.0 / np.array(kind.span)
    share = np.array(kind.share)
    enter = np.minimum(share * leave / (1.0 - share), 1.0)
    inside, now = np.zeros(len(domains), bool), False
    for place, domain in enumerate(domains):
        now = bool(luck[place] >= leave[domain]) if now else bool(luck[place] < enter[domain])
        inside[place] = now
    return inside


def _centre(mean: float, spread: float) -> float:
    """The logit c with E[sigmoid(c - spread z)] = mean for a standard normal z, by bisection."""
    z = np.linspace(-3.5, 3.5, 201)
    weight = np.exp(-z * z / 2.0)
    weight /= weight.sum()
    low, high = -10.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        value = float((weight / (1.0 + np.exp(spread * z - middle))).sum())
        low, high = (middle, high) if value < mean else (low, middle)
    return low


def _leading(luck: F64, chance: F64, decay: F64, longest: int) -> I64:
    alive = np.ones(luck.shape, bool)
    accepted = np.zeros(luck.shape, np.int64)
    for offset in range(longest):
        hit = luck < chance * decay[:, None] ** offset
        alive[:, luck.shape[1] - offset :] = False
        alive[:, : luck.shape[1] - offset] &= hit[:, offset:]
        accepted += alive
    return accepted


def _streaks(hit: Bools) -> I64:
    """``[D, L]``: length of the run of hits that ends just before each place."""
    streak = np.zeros(hit.shape, np.int64)
    for place in range(1, hit.shape[1]):
        streak[:, place] = np.where(hit[:, place - 1], streak[:, place - 1] + 1, 0)
    return streak


def bucket(streak: I64) -> I64:
    """Context of a match streak: 0, 1-2, 3-6, 7 and more tokens are buckets 0 to 3."""
    return np.searchsorted(np.array([1, 3, 7]), streak, side="right")


def oracle(world: World, arms: Arms, size: int, seeds: Sequence[int]) -> I64:
    """``[domains]``: the arm of the best throughput in each domain, each arm played alone on texts of one domain."""
    cost = world.cost(arms)
    best = []
    for domain in range(world.domains):
        speed = np.zeros(len(arms))
        for seed in seeds:
            given = text(world, seed, size, domain).course(world)
            each = [schedule.time_of(given, arms, cost, np.full(world.domains, arm)) for arm in range(len(arms))]
            speed += 1.0 / np.array(each)
        best.append(int(speed.argmax()))
    return np.array(best)


def time_of(given: Text, arms: Arms, cost: F64, choice: I64) -> float:
    """Time per token of a policy that plays ``choice[domain]``."""
    bare = course.Course(given.size, given.domain, given.accepted, np.zeros_like(given.streak))
    return schedule.time_of(bare, arms, cost, choice)


def hopeless_world() -> World:
    """One domain in which a copying and a model draft are never right."""
    never = Copying((0.5,), (5.0,), inside=0.0, outside=0.0)
    return World((Drafter("ngram", 0.01, 0.0005, never), Drafter("head", 0.02, 0.045, Modelling((1e-9,)))))


def random_world(seed: int) -> World:
    """A world drawn at random: 2 to 4 domains, an n-gram draft and 2 to 4 model drafts of other prices.

    Prices are log-uniform in [0.02, 0.35] forwards a token; acceptance rises with the price, from
    0.52 to 0.86, and differs by up to 0.11 between domains.
    """
    rng = np.random.default_rng((int(seed), 2))
    domains, models = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    share, span = rng.uniform(0.05, 0.9, domains), rng.uniform(5.0, 30.0, domains)
    drafters = [Drafter("ngram", 0.01, 0.0005, Copying(tuple(share.tolist()), tuple(span.tolist())))]
    for number in range(models):
        log = rng.uniform(np.log(0.02), np.log(0.35))
        base = 0.52 + (0.86 - 0.52) * (log - np.log(0.02)) / np.log(0.35 / 0.02)
        mean = np.clip(base + rng.uniform(-0.11, 0.11, domains), 0.05, 0.97)
        decay = float(rng.choice([1.0, 0.97, 0.92]))
        kind = Modelling(tuple(mean.tolist()))
        drafters.append(Drafter(f"model{number}", rng.uniform(0.0, 0.03), float(np.exp(log)), kind, decay))
    low = int(np.exp(rng.uniform(np.log(150), np.log(2500))))
    spread, memory = float(rng.choice([0.0, 0.5, 1.0])), float(rng.choice([0.0, 0.8, 0.95]))
    return World(tuple(drafters), segment=(low, int(2.5 * low)), spread=spread, memory=memory)
