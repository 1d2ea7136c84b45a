"""What a step says and what it does not: nested lengths, censoring, the direction of learning."""

from __future__ import annotations

import numpy as np

from flashspec.selectors import Arms, Observation, Selector
from flashspec.selectors.types import F64, State
from flashspec_conformance.checklist import Check, require
from flashspec_conformance.selectors.subject import HAZARD, Subject
from flashspec_conformance.selectors.world import arm_of, arms_of, quiet, repeat, seen, share, wander

LONG, MIDDLE = "ngram/8", "ngram/4"
ROUNDS = 300
SLACK = 0.1
"""A share of choices may go down by this much before a check calls it a loss of faith."""


def duel(arms: Arms, **prices: float) -> F64:
    """Costs where plain decoding, and the arms that have a price, are worth taking; others cost 30."""
    given = {"none": 1.0, **{name.replace("_", "/"): value for name, value in prices.items()}}
    return np.array([given.get(name, 30.0) for name in arms.names])


def losing(selector: Selector, arms: Arms, plain: bool) -> State:
    """Every arm but ``LONG`` has lost; a selector of hazards is told nothing bad about its draft."""
    others = [m for m, name in enumerate(arms.names) if name != LONG and (plain or not name.startswith("ngram"))]
    return repeat(selector, selector.init(arms), ROUNDS, *(seen(arms, m, 0) for m in others))


def faith(subject: Subject, *steps: Observation) -> tuple[float, float]:
    """How often ``LONG`` is taken after it was accepted in full, and after ``steps`` on top of that."""
    selector, arms = subject.build(), arms_of()
    cost = duel(arms, ngram_8=6.0)
    state = losing(selector, arms, subject.kind != HAZARD)
    state = repeat(selector, state, ROUNDS, seen(arms, arm_of(arms, LONG), 8))
    before = share(selector, state, arms, LONG, cost)
    return before, share(selector, repeat(selector, state, ROUNDS, *steps), arms, LONG, cost)


def learns(subject: Subject) -> None:
    """An arm whose drafts were all accepted is taken at least as often as had they all been rejected."""
    selector, arms = subject.build(), arms_of()
    cost, state, long = duel(arms, ngram_8=6.0), losing(selector, arms, subject.kind != HAZARD), arm_of(arms, LONG)
    good, bad = (repeat(selector, state, ROUNDS, seen(arms, long, accepted)) for accepted in (8, 0))
    high, low = (share(selector, s, arms, LONG, cost) for s in (good, bad))
    require(high >= low, f"taken in {high:.0%} of choices after acceptances, in {low:.0%} after rejections")


def cut_step(subject: Subject) -> None:
    """A step that EOS, a stop or the budget cut short is not a rejection."""
    arms = arms_of()
    long = arm_of(arms, LONG)
    for accepted in (8, 5):
        cuts = [seen(arms, long, accepted, kept=kept) for kept in (1, 2, 3)]
        before, after = faith(subject, *cuts)
        require(
            after >= before - SLACK,
            f"steps of 8 drafts, {accepted} accepted and 1 to 3 kept brought the arm from {before:.0%} of choices to "
            f"{after:.0%}",
        )


def cut_tail(subject: Subject) -> None:
    """What lies behind the cut says nothing: the same kept tokens give the same scores."""
    selector, arms = subject.build(), arms_of()
    state, long = wander(selector, arms, 40).state, arm_of(arms, LONG)
    after = [selector.update(state, seen(arms, long, accepted, kept=3)) for accepted in (3, 5, 8)]
    _same_scores(selector, arms, after, "steps of 8 drafts cut after 3, with 3, 5 and 8 accepted")


def full_acceptance(subject: Subject) -> None:
    """A draft that was accepted in full was not rejected at the offset behind it: a longer one is worth a try."""
    selector, arms = subject.build(), arms_of()
    cost = duel(arms, ngram_4=4.0, ngram_8=4.2)
    state = repeat(selector, losing(selector, arms, False), ROUNDS, seen(arms, arm_of(arms, MIDDLE), 4))
    found = share(selector, state, arms, LONG, cost)
    require(found >= 0.5, f"after {ROUNDS} drafts of 4 accepted in full, 8 were asked for in {found:.0%} of choices")


def full_reward(subject: Subject) -> None:
    """Accepting everything is the best that an arm can do: it never makes the arm less often taken."""
    selector, arms = subject.build(), arms_of()
    cost, state = duel(arms, ngram_8=6.0), losing(selector, arms, subject.kind != HAZARD)
    won = repeat(selector, state, ROUNDS, seen(arms, arm_of(arms, LONG), 8))
    before, after = (share(selector, s, arms, LONG, cost) for s in (state, won))
    require(after >= before - SLACK, f"full acceptances brought the arm from {before:.0%} of choices to {after:.0%}")


def empty_offer(subject: Subject) -> None:
    """A draft that proposed nothing was not rejected."""
    before, after = faith(subject, seen(arms_of(), arm_of(arms_of(), LONG), 0, offered=0))
    require(after >= before - SLACK, f"steps without a proposal brought the arm from {before:.0%} to {after:.0%}")


def short_offer(subject: Subject) -> None:
    """Offsets that were not offered were not rejected: 2 of 8 drafts offered and accepted is a full acceptance."""
    step = seen(arms_of(), arm_of(arms_of(), LONG), 2, offered=2)
    before, after = faith(subject, step)
    require(after >= before - SLACK, f"accepted offers of 2 brought the arm of 8 from {before:.0%} to {after:.0%}")


def nested_short(subject: Subject) -> None:
    """A rejection at offset a + 1 is the same news from every length above a."""
    selector, arms = subject.build(), arms_of()
    state = wander(selector, arms, 60).state
    for accepted in (0, 1, 2, 3):
        names = [n for n in ("ngram/1", "ngram/2", MIDDLE, LONG) if int(n[-1]) > accepted]
        after = [selector.update(state, seen(arms, arm_of(arms, n), accepted)) for n in names]
        _same_scores(selector, arms, after, f"{accepted} accepted by {', '.join(names)}")


def nested_long(subject: Subject) -> None:
    """To lengths g' <= g, a of g accepted says what min(a, g') of g' would have said."""
    selector, arms = subject.build(), arms_of()
    state = selector.init(arms)
    for accepted in range(1, 9):
        after = selector.update(state, seen(arms, arm_of(arms, LONG), accepted))
        for name in ("ngram/1", "ngram/2", MIDDLE):
            length = int(name[-1])
            if length <= accepted:
                nested = selector.update(state, seen(arms, arm_of(arms, name), length))
                places = [m for m, n in enumerate(arms.names) if n.startswith("ngram") and int(n[-1]) <= length]
                what = f"8 drafts with {accepted} accepted and {length} of {length}, lengths up to {length}"
                _same_scores(selector, arms, [after, nested], what, places)


def run_tail(subject: Subject) -> None:
    """A scored run ends at its first miss and at the last kept token; what follows is not read."""
    selector, arms = subject.build(), arms_of()
    state, model = wander(selector, arms, 40).state, arm_of(arms, "model/3")
    runs = ((1, 0), (1, 0, 1), (1, 0, 1, 1))
    after = [selector.update(state, seen(arms, model, 3, runs={"ngram": run})) for run in runs]
    _same_scores(selector, arms, after, "runs that differ behind their first miss")
    kept = [selector.update(state, seen(arms, model, 1, runs={"ngram": run})) for run in ((1, 1), (1, 1, 1), (1, 1, 0))]
    _same_scores(selector, arms, kept, "runs that differ behind the 2 tokens that were kept")


def _same_scores(
    selector: Selector, arms: Arms, states: list[State], what: str, places: list[int] | None = None
) -> None:
    """The scores of the states agree at ``places`` (all without them), under several keys and contexts."""
    chosen = list(range(len(arms))) if places is None else places
    cost, active = np.linspace(1.0, 1.7, len(arms)), np.ones(len(arms), bool)
    for key in ((1, 1), (1, 2), (2, 1)):
        for bucket in (0, 2):
            context = np.array([0, bucket, *quiet(arms)[2:]])
            rows = [selector.select(state, key, context, cost, active)[1].scores[chosen] for state in states]
            for row in rows[1:]:
                close = np.allclose(row, rows[0], rtol=1e-9, atol=0)
                require(close, f"{what}: scores {rows[0]} and {row}; they should be the same")


CHECKS = (
    Check("learns", learns),
    Check("cut-step", cut_step),
    Check("cut-tail", cut_tail),
    Check("full-reward", full_reward),
    Check("full-acceptance", full_acceptance, HAZARD),
    Check("empty-offer", empty_offer, HAZARD),
    Check("short-offer", short_offer, HAZARD),
    Check("nested-short", nested_short, HAZARD),
    Check("nested-long", nested_long, HAZARD),
    Check("run-tail", run_tail),
)
