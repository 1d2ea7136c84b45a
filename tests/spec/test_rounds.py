"""Several rounds in a row: which randomness may be read again, and the error where it may not."""

from __future__ import annotations

from fractions import Fraction

import pytest

from flashspec_spec.judges import Judge, block_judge, path_judge, token_judge
from flashspec_spec.noise import Keys, cells
from flashspec_spec.rounds import chained_law, engine_of, round_error, tree_rounds_law
from flashspec_spec.theorems import target_law, total_variation
from flashspec_spec.traversal import traversal_judge
from tests.spec.models import full_model, holed_model

GRID = [(2, 2, 4), (2, 3, 4), (3, 2, 4)]
SHAPES = pytest.mark.parametrize(("vocabulary", "gamma", "length"), GRID, ids=[f"V{v}-G{g}-L{n}" for v, g, n in GRID])
COIN, DRAFT, BOTH = (Keys(reused=frozenset(kinds)) for kinds in (["coin"], ["draft"], ["coin", "draft"]))
SHARED = Keys(draft="sample", reused=frozenset(["sample"]))


@pytest.mark.clause("RND-1", "BLK-4")
@SHAPES
@pytest.mark.parametrize("judge", [token_judge, block_judge, path_judge])
def test_rounds_with_fresh_randomness_keep_the_law(vocabulary: int, gamma: int, length: int, judge: Judge) -> None:
    """Keyed by round, every rule keeps the joint law of four tokens, with zeros and without."""
    for model in (full_model(vocabulary), holed_model(vocabulary, 1)):
        assert round_error(engine_of(model, gamma, judge), length) == 0


@pytest.mark.clause("RND-1", "RND-2", "ACC-3")
@SHAPES
@pytest.mark.parametrize("keys", [COIN, DRAFT, BOTH], ids=["coins", "draft noise", "both"])
def test_the_token_rule_may_read_coins_and_draft_noise_by_position(
    vocabulary: int, gamma: int, length: int, keys: Keys
) -> None:
    """It reads nothing beyond the first rejection, so that a later round may read the same numbers."""
    assert round_error(engine_of(full_model(vocabulary), gamma, token_judge, keys), length) == 0


@pytest.mark.clause("RND-1", "RND-2", "PTH-2", "PTH-3")
@SHAPES
@pytest.mark.parametrize("keys", [SHARED, DRAFT], ids=["shared with the drafts", "draft noise reused"])
def test_path_keeps_the_law_with_numbers_by_position(vocabulary: int, gamma: int, length: int, keys: Keys) -> None:
    """Sampling numbers and draft noise by position, of their own or the same ones."""
    assert round_error(engine_of(full_model(vocabulary), gamma, path_judge, keys), length) == 0


PINNED = {
    (2, 2, 4): (".0031", ".0143", ".0153"),
    (2, 3, 4): (".0082", ".0257", ".0195"),
    (3, 2, 4): (".0068", ".0098", ".0131"),
}


@pytest.mark.clause("BLK-4", "RND-2")
@SHAPES
def test_block_with_numbers_by_position_is_biased(vocabulary: int, gamma: int, length: int) -> None:
    """Reused coins, draft noise or both: off by the pinned amounts, though one round alone is exact."""
    model = full_model(vocabulary)
    found = [round_error(engine_of(model, gamma, block_judge, keys), length) for keys in (COIN, DRAFT, BOTH)]
    assert tuple(f"{float(error):.4f}"[1:] for error in found) == PINNED[vocabulary, gamma, length]


@pytest.mark.clause("BLK-4", "RND-2")
def test_reuse_does_not_show_in_the_first_token() -> None:
    """The first round is exact: only a joint law of several tokens sees what the second round reads again."""
    engine = engine_of(full_model(3), 2, block_judge, BOTH)
    assert round_error(engine, 1) == 0 < round_error(engine, 2)


@pytest.mark.clause("BLK-4", "RND-2")
def test_reuse_with_one_draft_is_harmless() -> None:
    """With g = 1 block is the token rule, in many rounds too."""
    assert round_error(engine_of(full_model(3), 1, block_judge, BOTH), 4) == 0


@pytest.mark.clause("RND-2", "RNG-3")
@pytest.mark.parametrize(
    ("judge", "keys", "printed"),
    [
        (token_judge, Keys(draft="sample"), "0.1077"),
        (block_judge, Keys(draft="sample"), "0.1053"),
        (token_judge, Keys(coin="sample"), "0.0298"),
        (block_judge, Keys(coin="sample"), "0.0037"),
        (token_judge, Keys(draft="coin"), "0.2370"),
    ],
    ids=[
        "token: draft = residual",
        "block: draft = residual",
        "token: coin = residual",
        "block: coin = residual",
        "token: draft = coin",
    ],
)
def test_domains_that_are_one_break_the_law(judge: Judge, keys: Keys, printed: str) -> None:
    """Draft noise, accept coin and residual draw from one number: off in one round already."""
    assert f"{float(round_error(engine_of(full_model(3), 2, judge, keys), 3)):.4f}" == printed


@pytest.mark.clause("TRE-4", "RND-1", "RND-2")
@pytest.mark.parametrize(
    ("vocabulary", "shape", "printed"), [(2, (1, 1), ".0022"), (3, (1, 1), ".0043"), (3, (2, 1), ".0024")]
)
def test_traversal_is_keyed_by_round(vocabulary: int, shape: tuple[int, ...], printed: str) -> None:
    """Fresh coins keep the law of rounds in a row; coins by position are off, on a chain as much as block."""
    model, length = full_model(vocabulary), len(shape) + 1
    reused = Keys(reused=frozenset(f"coin {n}" for n in range(4)))
    right = tree_rounds_law(model, shape, traversal_judge, Keys(), length)
    wrong = tree_rounds_law(model, shape, traversal_judge, reused, length)
    assert total_variation(right, target_law(model, length)) == 0
    error = total_variation(wrong, target_law(model, length))
    assert f"{float(error):.4f}"[1:] == printed
    if shape == (1, 1):
        assert error == round_error(engine_of(model, 2, block_judge, COIN), length)


def test_a_uniform_that_is_read_twice_remembers() -> None:
    """After [1/2, 1) is known, a draw from [.25, .75] can only give what lies there."""
    quarter, half = Fraction(1, 4), Fraction(1, 2)
    known = {("draft", 3): (half, Fraction(1))}
    assert [(token, share) for token, share, _ in cells(known, ("draft", 3), [1 - quarter, quarter])] == [
        (0, half),
        (1, half),
    ]
    left = [noise["draft", 3] for _, _, noise in cells(known, ("draft", 3), [1 - quarter, quarter])]
    assert left == [(half, 1 - quarter), (1 - quarter, Fraction(1))]


def test_noise_is_carried_only_if_reused_and_ahead() -> None:
    """Kinds that are keyed by round, and positions already committed, are forgotten."""
    noise = {("coin", 1): (Fraction(0), Fraction(1, 2)), ("coin", 2): (Fraction(0), Fraction(1, 3))}
    assert COIN.carried(noise, 2) == {("coin", 2): (Fraction(0), Fraction(1, 3))}
    assert DRAFT.carried(noise, 0) == {}


def test_a_chained_law_sums_to_one() -> None:
    """Nothing is lost between rounds."""
    assert sum(chained_law(engine_of(holed_model(3, 2), 2, block_judge, BOTH), 3).values()) == 1
