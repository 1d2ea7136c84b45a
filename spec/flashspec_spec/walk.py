"""The target-only walk down a tree: the path rule with several drafts for each token."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from flashspec_spec.clauses import clause
from flashspec_spec.theorems import Emission, Tokens
from flashspec_spec.tree import Node, merged


@clause(
    "TRE-1",
    "MUST",
    "Target-only walk: at each node a token is drawn from p with one uniform; if a child has it the walk goes on"
    " there, else it ends with that token. Children may come from anywhere, if they do not depend on the uniform.",
    since="1.1",
    untestable="no backend operation takes trees yet; the rule is proved by enumeration",
)
def walk_rule(node: Node, prefix: Tokens = (), reached: Fraction = Fraction(1)) -> Iterator[Emission]:
    """Every way the walk can end below a node, with its probability."""
    children = {child.token: child for child in merged(node.children)}
    for token, mass in enumerate(node.p):
        if not mass:
            continue
        if token in children:
            yield from walk_rule(children[token], (*prefix, token), reached * mass)
        else:
            yield (*prefix, token), reached * mass
