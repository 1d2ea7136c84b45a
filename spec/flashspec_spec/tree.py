"""Trees of drafts: how their children are drawn, and the exact law of what a rule emits from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import TypeAlias

from flashspec_spec.clauses import clause
from flashspec_spec.theorems import (
    Emission,
    JointLaw,
    Law,
    Model,
    Tokens,
    completed,
    normalised,
    target_law,
    total_variation,
)

ROOT = -1
Draw: TypeAlias = Callable[[Law, int], Iterator[tuple[Tokens, Fraction]]]
"""From q and a number of children: every list of children with its probability."""


@dataclass(frozen=True)
class Node:
    """A drafted token (``ROOT`` at the top), the laws behind it, and the drafts that were drawn there."""

    token: int
    p: Law
    q: Law
    children: tuple[Node, ...] = ()


TreeRule: TypeAlias = Callable[[Node], Iterator[Emission]]


def without(law: Law, token: int) -> Law:
    """A law without one token, renormalised; all 0 if nothing is left."""
    rest = [Fraction(0) if v == token else mass for v, mass in enumerate(law)]
    return normalised(rest) if any(rest) else rest


def distinct(q: Law, count: int) -> Iterator[tuple[Tokens, Fraction]]:
    """Drawn one after the other without replacement; fewer if q has fewer tokens."""
    if not count or not any(q):
        yield (), Fraction(1)
        return
    for token, mass in enumerate(q):
        if mass:
            for rest, weight in distinct(without(q, token), count - 1):
                yield (token, *rest), mass * weight


def repeated(q: Law, count: int) -> Iterator[tuple[Tokens, Fraction]]:
    """Drawn independently: the same token may come twice."""
    tokens = [v for v, mass in enumerate(q) if mass]
    for chosen in product(tokens, repeat=count):
        yield chosen, prod((q[v] for v in chosen), start=Fraction(1))


def listed(q: Law, count: int) -> Iterator[tuple[Tokens, Fraction]]:
    """The most probable tokens, in order: not drawn at all."""
    order = sorted((v for v, mass in enumerate(q) if mass), key=lambda v: (-q[v], v))
    yield tuple(order[:count]), Fraction(1)


def trees(
    model: Model, shape: Sequence[int], draw: Draw, prefix: Tokens = (), token: int = ROOT
) -> Iterator[tuple[Node, Fraction]]:
    """Every tree of a shape with its probability; ``shape[d]`` is the number of children at depth ``d``.

    Each child has subtrees of its own, two equal children too.
    """
    p = model.target(prefix)
    if not shape:
        yield Node(token, p, []), Fraction(1)
        return
    q = model.drafted(prefix)
    for tokens, weight in draw(q, shape[0]):
        below = [list(trees(model, shape[1:], draw, (*prefix, child), child)) for child in tokens]
        for choice in product(*below):
            share = prod((part for _, part in choice), start=weight)
            yield Node(token, p, q, tuple(node for node, _ in choice)), share


def tree_law(model: Model, shape: Sequence[int], draw: Draw, rule: TreeRule) -> JointLaw:
    """The joint law of ``len(shape) + 1`` tokens that begin with what a rule emits from a drawn tree."""
    emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for root, probability in trees(model, shape, draw):
        for tokens, weight in rule(root):
            emitted[tokens] += probability * weight
    return completed(model, dict(emitted), len(shape) + 1)


@clause(
    "TRE-5",
    "MUST",
    "Equal children of one node: the target-only walk takes the first and leaves out the others; recursive rejection"
    " and traversal take them only as draws with replacement, whose q never changes.",
    since="1.1",
    untestable="no backend operation takes trees yet; the rules are proved by enumeration",
)
def merged(children: Sequence[Node]) -> tuple[Node, ...]:
    """The children without those whose token came before.

    >>> [child.token for child in merged([Node(3, [], []), Node(1, [], []), Node(3, [], [])])]
    [3, 1]
    """
    first = {child.token: child for child in reversed(children)}
    return tuple(child for child in children if first[child.token] is child)


def require_distinct(node: Node, remedy: str) -> None:
    """Refuse a node with equal children."""
    tokens = [child.token for child in node.children]
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"children are {tokens}; allowed: each token once; {remedy}")


def tree_error(model: Model, shape: Sequence[int], draw: Draw, rule: TreeRule) -> Fraction:
    """Total variation of a tree rule from the target; 0 where the rule is lossless."""
    return total_variation(tree_law(model, shape, draw, rule), target_law(model, len(shape) + 1))
