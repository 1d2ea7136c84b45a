"""Where a text ends: the first stop token or the budget, and nothing drawn anew behind it."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from flashspec_spec.clauses import clause
from flashspec_spec.theorems import JointLaw, Tokens


@clause(
    "STP-2",
    "MUST",
    "Text ends at the first stop token or at the budget, whichever comes first; what was emitted behind it is dropped"
    " and nothing is drawn anew. The text that is left then has the law of the target's text cut in the same way.",
    since="1.1",
    untestable="no backend operation; flashspec.decoding cuts the text and has the tests",
)
def cut_text(tokens: Tokens, stops: frozenset[int], budget: int) -> Tokens:
    """The tokens up to the first stop token, which stays, and up to the budget.

    >>> cut_text((4, 2, 7), frozenset({2}), 5), cut_text((4, 2, 7), frozenset({2}), 1)
    ((4, 2), (4,))
    """
    ends = (place + 1 for place, token in enumerate(tokens) if token in stops)
    return tokens[: min(next(ends, len(tokens)), budget)]


def cut_law(law: JointLaw, stops: frozenset[int], budget: int) -> JointLaw:
    """The law of the cut text of a joint law."""
    joint: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, mass in law.items():
        joint[cut_text(tokens, stops, budget)] += mass
    return dict(joint)
