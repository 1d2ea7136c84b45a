"""Traversal verification (2025): the block rule on a tree, from the leaves to the root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import TypeAlias

from flashspec_spec.block import accept_share, block_residual
from flashspec_spec.clauses import clause
from flashspec_spec.judges import End, ending
from flashspec_spec.noise import Keys, Noise, flip
from flashspec_spec.theorems import Emission, Law, Tokens, normalised
from flashspec_spec.tree import Node, require_distinct, without

Test: TypeAlias = tuple[Tokens, Fraction, Law]
"""A path that may be accepted, the probability of that when it is tried, and the law of the token after it."""


@clause(
    "TRE-4",
    "MUST",
    "Traversal of children drawn without replacement: the root has r = 1, child x of a node r min(1, r p(x) / q(x))."
    " A leaf is accepted with probability r, its bonus drawn from p. After a failed child x the node has S, the sum of"
    " [r p - q]+, r becomes S / (S + 1 - r), p becomes [r p - q]+ renormalised and q becomes q without x; then the"
    " next child is tried, or after the last the node itself. On a chain this is the block rule.",
    since="1.1",
    untestable="no backend operation takes trees yet; the rule is proved by enumeration",
)
def tried_paths(node: Node, prefix: Tokens = (), r: Fraction = Fraction(1), replaced: bool = False) -> Iterator[Test]:
    """The paths in the order in which they are tried; the last, the root's, is accepted for certain.

    Children drawn with replacement (``replaced``) leave q as it is.

    Raises:
        ValueError: equal children of one node that were not drawn with replacement (TRE-5).
    """
    if not replaced:
        require_distinct(node, "merge them, or judge draws with replacement as such")
    p, q = node.p, node.q
    for child in node.children:
        x = child.token
        yield from tried_paths(child, (*prefix, x), min(Fraction(1), r * p[x] / q[x]), replaced)
        left = block_residual(r, p, q)
        mass = sum(left, Fraction(0))
        r, p, q = accept_share(r, mass), normalised(left) if mass else p, q if replaced else without(q, x)
    yield prefix, r, p


def traversal_judge(root: Node, at: int, noise: Noise, keys: Keys, replaced: bool = False) -> Iterator[End]:
    """Every way the traversal can end, its probability, and the noise left.

    The n-th test at depth d of the tree reads the coin of kind ``"{keys.coin} {n}"`` at ``at + d - 1``.
    """
    reached, tried = Fraction(1), Counter[int]()
    for path, r, law in tried_paths(root, replaced=replaced):
        depth = len(path)
        kind = f"{keys.coin} {tried[depth]}"
        tried[depth] += 1
        failed = None
        for accepted, share, left in flip(noise, (kind, at + depth - 1), r):
            if accepted:
                yield from ending(path, law, reached * share, left, (keys.sample, at + depth))
            else:
                failed = share, left
        if failed is None:
            return
        reached, noise = reached * failed[0], failed[1]


def traversal_rule(root: Node) -> Iterator[Emission]:
    """:func:`traversal_judge` of one round with its own randomness."""
    return ((tokens, weight) for tokens, weight, _ in traversal_judge(root, 0, {}, Keys()))


def repeated_traversal_rule(root: Node) -> Iterator[Emission]:
    """:func:`traversal_rule` for children drawn by ``tree.repeated``."""
    return ((tokens, weight) for tokens, weight, _ in traversal_judge(root, 0, {}, Keys(), replaced=True))
