"""Random models of the tests: a law of its own for each name and prefix."""

from __future__ import annotations

import random
from fractions import Fraction

from flashspec_spec.fixtures import honest
from flashspec_spec.theorems import Law, Model, Tokens, normalised


def holed(name: str, vocabulary: int, prefix: Tokens) -> Law:
    """A law in which about one mass in three is 0."""
    source = random.Random(f"{name} {prefix}")
    masses = [Fraction(max(source.randint(-4, 9), 0)) for _ in range(vocabulary)]
    if not any(masses):
        masses[source.randrange(vocabulary)] = Fraction(1)
    return normalised(masses)


def full(name: str, vocabulary: int, prefix: Tokens) -> Law:
    """A law whose masses are 1 to 9 parts of their sum, none of them 0."""
    source = random.Random(f"{name} {prefix}")
    return normalised([Fraction(source.randint(1, 9)) for _ in range(vocabulary)])


def holed_model(vocabulary: int, seed: int) -> Model:
    """An honest model of laws with zeros; some rows of target and draft are equal."""

    def draft(prefix: Tokens) -> Law:
        return holed(f"p{seed}" if sum(prefix) % 3 == 2 else f"q{seed}", vocabulary, prefix)

    return honest(vocabulary, lambda prefix: holed(f"p{seed}", vocabulary, prefix), draft)


def full_model(vocabulary: int, seed: int = 0) -> Model:
    """An honest model of laws without zeros."""
    return honest(
        vocabulary,
        lambda prefix: full(f"p{seed}", vocabulary, prefix),
        lambda prefix: full(f"q{seed}", vocabulary, prefix),
    )
