"""The output law: clause LAW-1, and the law of accepted lengths behind ACC, RES and BON.

Three verdicts are kept apart. *Law* (LAW-1): the completed tokens follow the target; exact
alternatives to the token rule pass it. *Emission*: accepted length and tokens follow the token rule.
*Kolmogorov-Smirnov*: the mandated gate, part of the law verdict.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from flashspec_conformance import statistics, trials
from flashspec_conformance.chain import GAMMA, emission_table, joint_table
from flashspec_conformance.subject import Subject
from flashspec_conformance.trials import Trial

pytestmark = [pytest.mark.needs("method:token"), pytest.mark.slow]

TEMPERATURES = (0.7, 1.3)
Trials = Callable[[str, float], Trial]


@pytest.fixture(scope="module")
def trial(subject: Subject) -> Trials:
    """The trial of a kind and a temperature, run once for all tests that look at it."""
    done: dict[tuple[str, float], Trial] = {}

    def get(kind: str, temperature: float) -> Trial:
        if (kind, temperature) not in done:
            done[kind, temperature] = trials.run(subject, kind, temperature)
        return done[kind, temperature]

    return get


@pytest.mark.clause("LAW-1")
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_joint_law_of_three_tokens_is_the_targets(trial: Trials, kind: str, temperature: float) -> None:
    """Chi-square over the 64 sequences, N of ``trials.DRAWS``; false alarms 1e-6; 99.9% power from w = 0.1."""
    run = trial(kind, temperature)
    trials.expect_table(run.joint(), joint_table(run.fixture), f"joint law, {kind}, T = {temperature}")


@pytest.mark.clause("LAW-1")
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_first_tokens_pass_the_kolmogorov_smirnov_gate(trial: Trials, kind: str, temperature: float) -> None:
    """N = 10,000, alpha = 0.01, randomised PIT of the first emitted token."""
    run = trial(kind, temperature)
    tokens = np.array(run.verdict.tokens[:, 0], np.int64)
    laws = np.broadcast_to(run.fixture.p[0], (len(tokens), 4))
    test = statistics.kolmogorov_smirnov(laws, tokens, 0)
    trials.expect(test, statistics.KS_ALPHA, f"first tokens, {kind}, T = {temperature}")


@pytest.mark.clause("LAW-1")
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_second_tokens_pass_the_kolmogorov_smirnov_gate(trial: Trials, kind: str, temperature: float) -> None:
    """N = 10,000, alpha = 0.01, randomised PIT of the second token given the first, where a call emits two."""
    run = trial(kind, temperature)
    tokens = np.array(run.verdict.tokens[run.verdict.num_emitted >= 2], np.int64)
    tokens = tokens if len(tokens) >= statistics.KS_DRAWS else run.completed()
    test = statistics.kolmogorov_smirnov(run.fixture.p[1][tokens[:, 0]], tokens[:, 1], 1)
    trials.expect(test, statistics.KS_ALPHA, f"second tokens, {kind}, T = {temperature}")


@pytest.mark.clause("ACC-1", "ACC-3", "RES-1", "BON-1", "BON-2", "RNG-3", "PRP-1", "PRP-2", "PRP-3")
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_accepted_lengths_and_tokens_follow_the_token_rule(trial: Trials, kind: str, temperature: float) -> None:
    """Chi-square over everything that one call can emit, N of ``trials.DRAWS``; false alarms 1e-6."""
    run = trial(kind, temperature)
    assert set(run.verdict.num_emitted - run.verdict.num_accepted) == {1}
    assert run.verdict.tokens.shape[1] == GAMMA + 1
    table = emission_table(run.fixture, onehot=kind == "onehot")
    trials.expect_table(run.emissions(), table, f"emissions, {kind}, T = {temperature}")
