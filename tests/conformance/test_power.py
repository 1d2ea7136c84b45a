"""What the law tests resolve: the numbers that they state, computed."""

from __future__ import annotations

import numpy as np
import pytest

from flashspec_conformance import chain, controls, fakes, statistics, trials
from flashspec_conformance.case import Knobs
from flashspec_conformance.subject import Subject
from flashspec_conformance.suite.test_law import ROUNDS
from flashspec_conformance.trials import DRAWS, LENGTH
from flashspec_spec.judges import block_rule, path_rule
from flashspec_spec.theorems import token_rule

FIXTURE = chain.chain(Knobs(0.7), Knobs(1.3), "float64")
CERTAIN = 1 - 1e-9
DISTANCES = {
    "no residual": 0.147,
    "softmax residual": 0.198,
    "absolute residual": 0.190,
    "swapped residual": 0.379,
    "residual of row 0": 0.141,
    "inverted ratio": 0.448,
    "always accepted": 0.492,
    "no coin": 0.384,
    "bonus of the row before": 0.152,
    "sum of the mask": 0.101,
    "first draft not judged": 0.228,
    "bonus after a rejection": 0.186,
}
"""Total variation of the joint law from the target's, for drafts with a law of their own."""


@pytest.mark.parametrize("name", list(controls.CONTROLS))
def test_every_control_is_rejected_for_certain(name: str) -> None:
    """By the joint law of sampled drafts, and by the emissions of sampled and of one-hot drafts."""
    rule, right = controls.CONTROLS[name], chain.joint_table(FIXTURE)
    wrong = chain.completed_table(FIXTURE, False, rule)
    w, cells = statistics.effect(wrong, right, DRAWS["sparse"])
    assert statistics.power(w, cells, DRAWS["sparse"]) > CERTAIN
    if name in DISTANCES:
        distance = sum(abs(wrong.get(t, 0.0) - right[t]) for t in right) / 2
        assert abs(distance - DISTANCES[name]) < 1e-3
    for onehot, kind in ((False, "sparse"), (True, "onehot")):
        own = chain.emission_table(FIXTURE, onehot)
        w, cells = statistics.effect(chain.emission_table(FIXTURE, onehot, rule), own, DRAWS[kind])
        assert statistics.power(w, cells, DRAWS[kind]) > CERTAIN


@pytest.mark.parametrize(("cells", "draws", "stated"), [(64, 16_000, 0.095), (64, 48_000, 0.055)])
def test_the_joint_law_resolves_what_its_test_states(cells: int, draws: int, stated: float) -> None:
    """99.9% power at the stated effect, false alarms 1e-6."""
    assert stated - 0.006 < statistics.resolution(cells, draws) <= stated
    assert {16_000, 48_000} == set(DRAWS.values())


def test_emissions_and_rounds_resolve_what_their_tests_state() -> None:
    """Cells as the tests pool them."""
    for onehot, kind, stated in ((False, "sparse", 0.1), (True, "onehot", 0.06)):
        own = chain.emission_table(FIXTURE, onehot)
        _, cells = statistics.effect(own, own, DRAWS[kind])
        assert statistics.resolution(cells, DRAWS[kind]) <= stated
    long = chain.long_table(FIXTURE, LENGTH)
    _, cells = statistics.effect(long, long, ROUNDS)
    assert len(long) == 256
    assert (cells, statistics.resolution(cells, ROUNDS) <= 0.12) == (111, True)


def test_the_right_rules_have_the_targets_law() -> None:
    """Token, block and path completed with the target, to rounding; their lengths differ."""
    right, means = chain.joint_table(FIXTURE), []
    for rule in (token_rule, block_rule, path_rule):
        own = chain.completed_table(FIXTURE, False, rule)
        assert max(abs(own[t] - right[t]) for t in right) < 1e-12
        means.append(chain.mean_accepted(chain.emission_table(FIXTURE, False, rule))[0])
    assert means[1] > means[0] > means[2]


def test_texts_of_any_length_continue_the_fixture() -> None:
    """The first three tokens have the fixture's joint law, the fourth depends on the two before it."""
    long, joint = chain.long_table(FIXTURE, LENGTH), chain.joint_table(FIXTURE)
    for t, weight in joint.items():
        assert abs(sum(long[*t, v] for v in range(chain.VOCABULARY)) - weight) < 1e-9
    text = np.array([[3, 1, 2, 0]])
    assert np.array_equal(chain.rows_after(FIXTURE.p, text, np.array([3]))[0], FIXTURE.p[2][1, 2])


def test_rounds_move_the_position_by_what_was_committed() -> None:
    """The tokens of three rounds are those of single calls at their own positions."""
    subject = Subject("plain", fakes.plain)
    fixture, tokens = trials.rounds(subject, "sparse", 0.7, 40, "token")
    assert tokens.shape == (40, LENGTH)
    assert tokens.max() < chain.VOCABULARY
    start = np.zeros(40, np.int64)
    stream = trials.stream_of(start + trials.FIRST_POSITION, np.arange(40))
    texts = trials.Texts(fixture, np.zeros((40, LENGTH), np.int64), start, stream)
    first = trials.verify(subject, "sparse", texts, "token")
    for n in range(40):
        emitted = int(first.num_emitted[n])
        assert tokens[n, :emitted].tolist() == first.tokens[n, :emitted].tolist()


def test_a_mean_off_by_five_standard_errors_is_seen() -> None:
    """Two-sided: 5 standard errors have a p-value of 6e-7, half of one has none to speak of."""
    values = np.repeat([0, 1], 5000)
    assert statistics.mean_test(values, 0.5 + 5 * 0.005, 0.25).p_value < statistics.CHI_ALPHA
    assert statistics.mean_test(values, 0.5 - 0.0025, 0.25).p_value > 0.5
