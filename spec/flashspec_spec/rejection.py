"""Recursive rejection on a tree (SpecInfer, Sequoia): the token rule once for each child, on what is left."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from flashspec_spec.acceptance import acceptance_probability
from flashspec_spec.clauses import clause
from flashspec_spec.residual import after_rejection
from flashspec_spec.theorems import Emission, Tokens, continued, normalised
from flashspec_spec.tree import Node, require_distinct, without


def _rejection(node: Node, prefix: Tokens, reached: Fraction, replaced: bool) -> Iterator[Emission]:
    if not replaced:
        require_distinct(node, "merge them, or judge draws with replacement as such")
    p, q = node.p, node.q
    for child in node.children:
        x = child.token
        accepted = acceptance_probability(p[x], q[x])
        yield from _rejection(child, (*prefix, x), reached * accepted, replaced) if accepted else ()
        if accepted == 1:
            return
        reached *= 1 - accepted
        p = normalised(after_rejection(p, q)[0])
        q = q if replaced else without(q, x)
    yield from continued(prefix, p, reached)


@clause(
    "TRE-2",
    "MUST",
    "Recursive rejection of children drawn without replacement: each child x in order is accepted with probability"
    " min(1, p(x) / q(x)); after a rejection p becomes [p - q]+ renormalised and q becomes q without x, renormalised;"
    " after the last child the token is drawn from that p.",
    since="1.1",
    untestable="no backend operation takes trees yet; the rule is proved by enumeration",
)
def rejection_rule(root: Node) -> Iterator[Emission]:
    """Every way recursive rejection can end, for children drawn by ``tree.distinct``.

    Raises:
        ValueError: equal children of one node (TRE-5).
    """
    return _rejection(root, (), Fraction(1), replaced=False)


@clause(
    "TRE-3",
    "MUST",
    "Recursive rejection of children drawn with replacement: as TRE-2, but q stays as it is.",
    since="1.1",
    untestable="no backend operation takes trees yet; the rule is proved by enumeration",
)
def repeated_rejection_rule(root: Node) -> Iterator[Emission]:
    """Every way recursive rejection can end, for children drawn by ``tree.repeated``."""
    return _rejection(root, (), Fraction(1), replaced=True)
