"""Rules on trees of drafts: exact for the draws they are made for, biased for others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest

from flashspec_spec.fixtures import fixture_e
from flashspec_spec.judges import block_rule, path_rule
from flashspec_spec.rejection import rejection_rule, repeated_rejection_rule
from flashspec_spec.theorems import Emission, Rule, Tokens, continued, token_rule, trial_of
from flashspec_spec.traversal import repeated_traversal_rule, traversal_rule, tried_paths
from flashspec_spec.tree import Draw, Node, TreeRule, distinct, listed, merged, repeated, tree_error, trees, without
from flashspec_spec.walk import walk_rule
from tests.spec.models import full_model, holed_model

GRID = [
    *((v, shape) for v in (2, 3) for shape in [(1,), (2,), (3,), (1, 1, 1), (2, 1), (1, 2), (2, 2), (3, 1)]),
    *((4, shape) for shape in [(2,), (3,), (2, 1), (1, 2)]),
]
SHAPES = pytest.mark.parametrize(("vocabulary", "shape"), GRID, ids=[f"V{v}-{s}" for v, s in GRID])


def lossless(rule: TreeRule, draw: Draw, vocabulary: int, shape: Sequence[int]) -> bool:
    """Whether a rule gives difference 0 with zeros, with p == q rows and without either."""
    models = holed_model(vocabulary, 1), holed_model(vocabulary, 2), full_model(vocabulary)
    return all(tree_error(model, shape, draw, rule) == 0 for model in models)


@pytest.mark.clause("TRE-1", "TRE-5")
@SHAPES
@pytest.mark.parametrize("draw", [distinct, repeated, listed])
def test_the_walk_is_lossless_for_children_from_anywhere(vocabulary: int, shape: Sequence[int], draw: Draw) -> None:
    """Drawn without or with replacement, or the most probable tokens: the walk does not ask."""
    assert lossless(walk_rule, draw, vocabulary, shape)


@pytest.mark.clause("TRE-2")
@SHAPES
def test_recursive_rejection_is_lossless_without_replacement(vocabulary: int, shape: Sequence[int]) -> None:
    """q loses each rejected child."""
    assert lossless(rejection_rule, distinct, vocabulary, shape)


@pytest.mark.clause("TRE-3", "TRE-5")
@SHAPES
def test_recursive_rejection_is_lossless_with_replacement(vocabulary: int, shape: Sequence[int]) -> None:
    """q stays, equal children are judged one after the other."""
    assert lossless(repeated_rejection_rule, repeated, vocabulary, shape)


@pytest.mark.clause("TRE-4")
@SHAPES
def test_traversal_is_lossless_without_replacement(vocabulary: int, shape: Sequence[int]) -> None:
    """From the leaves to the root."""
    assert lossless(traversal_rule, distinct, vocabulary, shape)


@pytest.mark.clause("TRE-4", "TRE-5")
@pytest.mark.parametrize(("vocabulary", "shape"), [(2, (2,)), (3, (3,)), (2, (2, 2)), (3, (2, 1)), (3, (1, 2))])
def test_traversal_with_replacement_keeps_q(vocabulary: int, shape: Sequence[int]) -> None:
    """Draws with replacement are exact if q never changes."""
    assert lossless(repeated_traversal_rule, repeated, vocabulary, shape)


def chain_drafts(root: Node) -> Tokens:
    """The drafts of a tree without branches."""
    return (root.children[0].token, *chain_drafts(root.children[0])) if root.children else ()


def ends(emissions: Iterator[Emission]) -> dict[Tokens, Fraction]:
    """Emissions summed by what they emit."""
    found: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for tokens, weight in emissions:
        found[tokens] += weight
    return dict(found)


@pytest.mark.clause("TRE-1", "TRE-2", "TRE-3", "TRE-4")
@pytest.mark.parametrize(
    ("rule", "chain"),
    [
        (walk_rule, path_rule),
        (rejection_rule, token_rule),
        (repeated_rejection_rule, token_rule),
        (traversal_rule, block_rule),
    ],
    ids=["walk: path", "rejection: token", "with replacement: token", "traversal: block"],
)
@pytest.mark.parametrize(("vocabulary", "gamma"), [(2, 4), (3, 3), (4, 2)])
def test_on_a_chain_each_tree_rule_is_its_chain_rule(rule: TreeRule, chain: Rule, vocabulary: int, gamma: int) -> None:
    """Every trial has the same ends, not just the same law."""
    model = holed_model(vocabulary, 3)
    for root, _ in trees(model, (1,) * gamma, distinct):
        assert ends(rule(root)) == ends(chain(trial_of(model, chain_drafts(root))))


def summed_walk(node: Node, prefix: Tokens = (), reached: Fraction = Fraction(1)) -> Iterator[Emission]:
    """A walk that adds up p over the children and counts equal ones twice."""
    rest, left = node.p, Fraction(1)
    for child in node.children:
        mass = min(node.p[child.token], left)
        left -= mass
        if mass:
            yield from summed_walk(child, (*prefix, child.token), reached * mass)
        rest = without(rest, child.token)
    yield from continued(prefix, rest if any(rest) else node.p, reached * left)


WRONG: dict[str, tuple[TreeRule, Draw]] = {
    "q not renewed": (repeated_rejection_rule, distinct),
    "rejection of listed children": (rejection_rule, listed),
    "traversal of listed children": (traversal_rule, listed),
    "walk counts equal children twice": (summed_walk, repeated),
}
PINNED = """
q not renewed                    0.0066 0.0223 0.0066 0.0579
rejection of listed children     0.3892 0.3892 0.4499 0.4499
traversal of listed children     0.3892 0.3892 0.4115 0.3369
walk counts equal children twice 0.0107 0.0290 0.0107 0.0163
"""


@pytest.mark.clause("TRE-1", "TRE-2", "TRE-4", "TRE-5")
@pytest.mark.parametrize("line", PINNED.strip().splitlines(), ids=list(WRONG))
def test_rules_for_other_draws_are_off_by_the_pinned_amount(line: str) -> None:
    """Fixture E, shapes [2], [3], [2, 1] and [1, 2]."""
    *words, a, b, c, d = line.split()
    rule, draw = WRONG[" ".join(words)]
    for shape, printed in (((2,), a), ((3,), b), ((2, 1), c), ((1, 2), d)):
        assert f"{float(tree_error(fixture_e(), shape, draw, rule)):.4f}" == printed


@pytest.mark.clause("TRE-5")
@pytest.mark.parametrize("rule", [rejection_rule, traversal_rule])
def test_equal_children_are_refused_without_replacement(rule: TreeRule) -> None:
    """The message names the children and the ways out."""
    p = [Fraction(1, 2)] * 2
    twins = Node(-1, p, p, (Node(1, p, []), Node(1, p, [])))
    with pytest.raises(ValueError, match=r"children are \[1, 1\]; allowed: each token once; merge them"):
        list(rule(twins))


@pytest.mark.clause("TRE-5")
def test_merging_keeps_the_first_of_equal_children() -> None:
    """Its subtree stays, the later one's goes."""
    p = [Fraction(1, 2)] * 2
    first, other, later = Node(1, p, p, (Node(0, p, []),)), Node(0, p, []), Node(1, p, [])
    assert merged((first, other, later)) == (first, other)


@pytest.mark.clause("TRE-1", "TRE-5")
def test_the_walk_goes_on_below_the_first_of_equal_children() -> None:
    """Token 1 comes twice, with the drafts 0 and 1 below: only the first is looked at."""
    p = [Fraction(0), Fraction(1)]
    twins = Node(-1, p, p, (Node(1, p, p, (Node(0, p, []),)), Node(1, p, p, (Node(1, p, []),))))
    assert ends(walk_rule(twins)) == {(1, 1): 1}


@pytest.mark.clause("TRE-4")
def test_the_last_path_tried_is_the_root_and_certain() -> None:
    """Some token always comes out: the test of the root has probability 1."""
    for root, _ in trees(holed_model(3, 5), (2, 1), distinct):
        *_, (path, r, _) = tried_paths(root)
        assert not path
        assert r == 1


@pytest.mark.parametrize("draw", [distinct, repeated, listed])
def test_the_trees_of_a_shape_have_total_probability_one(draw: Draw) -> None:
    """Rows with fewer tokens than children give smaller trees, not lost ones."""
    assert sum(weight for _, weight in trees(holed_model(3, 1), (3, 2), draw)) == 1
