"""Hypothesis strategies: shapes and choices are drawn, contents follow from a drawn seed.

Contents come from a seeded generator because a shrunk logit says no more than a random one, while
a small shape says a lot.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from flashspec_conformance import generate
from flashspec_conformance.case import Case
from flashspec_conformance.subject import DTYPES, Subject

VOCABULARIES = (1, 2, 3, 5, 8, 31, 32, 33, 65)
EXAMPLES = 120
"""Calls per property; each has up to eight requests."""


def fixed(examples: int = EXAMPLES) -> settings:
    """Settings of a property: the same examples in every run, no deadline, no database."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )


def cases(subject: Subject, layout: str | None = None) -> st.SearchStrategy[Case]:
    """Calls with up to 8 requests and 8 drafts over everything that the backend declares."""
    return st.builds(
        lambda batch, width, vocab, dtype, where, seed: generate.case(
            np.random.default_rng(seed), subject, (batch, width, vocab), dtype, where
        ),
        st.integers(0, 8),
        st.integers(0, 8),
        st.sampled_from(VOCABULARIES),
        st.sampled_from(subject.values(DTYPES, "dtype")),
        st.sampled_from(("padded", "ragged") if layout is None else (layout,)),
        st.integers(0, 2**32 - 1),
    )


def rows(subject: Subject) -> st.SearchStrategy[tuple[Callable[[], np.random.Generator], int, int, str]]:
    """``(generator, B, V, dtype)`` for plain sampling."""
    return st.tuples(
        st.integers(0, 2**32 - 1).map(lambda seed: lambda: np.random.default_rng(seed)),
        st.integers(0, 8),
        st.sampled_from(VOCABULARIES),
        st.sampled_from(subject.values(DTYPES, "dtype")),
    )
