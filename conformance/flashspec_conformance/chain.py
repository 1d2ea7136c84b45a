"""The default law fixture: V = 4, gamma = 2, every row depends on the prefix, as real models' rows do.

Fixtures with the same row at every position, one draft, or a residual of one token do not see stale
bonus rows, residuals of the wrong row or reused noise; this one does. A model is a tuple of arrays:
level ``j`` is indexed by the ``j`` tokens before it and holds a law on its last axis.
"""

from __future__ import annotations

from fractions import Fraction

import attrs
import numpy as np
import numpy.typing as npt

from flashspec_conformance.case import F64, Knobs, to_dtype
from flashspec_conformance.oracle import row_law
from flashspec_spec.proposals import DenseRow, OneHotRow, ProposalRow
from flashspec_spec.theorems import Model, Rule, draft_sequences, emitted_law, target_law, token_rule, trial_of

Levels = tuple[F64, ...]
Table = dict[tuple[int, ...], float]

GAMMA, VOCABULARY = 2, 4

_P = (
    [0.3266, 0.1794, 0.3083, 0.1857],
    [
        [0.2227, 0.2622, 0.4462, 0.0689],
        [0.0641, 0.0833, 0.5784, 0.2742],
        [0.1147, 0.0944, 0.3835, 0.4074],
        [0.3618, 0.4165, 0.1953, 0.0264],
    ],
    [
        [
            [0.5881, 0.1518, 0.0816, 0.1785],
            [0.0511, 0.0446, 0.5500, 0.3543],
            [0.4835, 0.1191, 0.1289, 0.2685],
            [0.2812, 0.0296, 0.1648, 0.5244],
        ],
        [
            [0.4616, 0.2226, 0.2804, 0.0354],
            [0.1452, 0.3223, 0.3692, 0.1633],
            [0.0261, 0.3288, 0.3222, 0.3229],
            [0.1121, 0.4715, 0.1978, 0.2186],
        ],
        [
            [0.0900, 0.2342, 0.6187, 0.0571],
            [0.0349, 0.1642, 0.3317, 0.4692],
            [0.1946, 0.3443, 0.2089, 0.2522],
            [0.0490, 0.5437, 0.2046, 0.2027],
        ],
        [
            [0.6362, 0.0724, 0.2560, 0.0354],
            [0.7035, 0.0221, 0.2330, 0.0414],
            [0.0522, 0.3071, 0.4991, 0.1416],
            [0.2753, 0.2096, 0.1027, 0.4124],
        ],
    ],
)
_Q = (
    [0.2235, 0.3155, 0.1832, 0.2778],
    [
        [0.0484, 0.5073, 0.0199, 0.4244],
        [0.2182, 0.4579, 0.0211, 0.3028],
        [0.0515, 0.0910, 0.6238, 0.2337],
        [0.0233, 0.2747, 0.1134, 0.5886],
    ],
)


@attrs.frozen(eq=False)
class Chain:
    """Logits of target and drafter with the parameters that turn them into laws."""

    target_logits: Levels
    draft_logits: Levels
    target_knobs: Knobs
    draft_knobs: Knobs

    @property
    def p(self) -> Levels:
        """The target's laws."""
        return tuple(_laws(level, self.target_knobs) for level in self.target_logits)

    @property
    def q(self) -> Levels:
        """The drafter's laws."""
        return tuple(_laws(level, self.draft_knobs) for level in self.draft_logits)


def chain(target: Knobs, draft: Knobs, dtype: str) -> Chain:
    """The fixture with logits chosen so that temperature alone gives back the tabled numbers."""
    return Chain(
        tuple(to_dtype(np.log(level) * target.temperature, dtype) for level in _P),
        tuple(to_dtype(np.log(level) * draft.temperature, dtype) for level in _Q),
        target,
        draft,
    )


def _laws(level: F64, knobs: Knobs) -> F64:
    rows = level.reshape(-1, VOCABULARY)
    return np.array([[float(x) for x in row_law(row, knobs)] for row in rows]).reshape(level.shape)


def _fractions(law: F64) -> list[Fraction]:
    exact = [Fraction(float(x)) for x in law]
    return [x / sum(exact) for x in exact]


def model(fixture: Chain, onehot: bool) -> Model:
    """The fixture as the spec's theorems take it."""
    p, q = fixture.p, fixture.q

    def claimed(prefix: tuple[int, ...]) -> ProposalRow:
        return OneHotRow() if onehot else DenseRow(tuple(_fractions(q[len(prefix)][prefix])))

    return Model(
        VOCABULARY,
        lambda prefix: _fractions(p[len(prefix)][prefix]),
        lambda prefix: _fractions(q[len(prefix)][prefix]),
        claimed,
    )


def joint_table(fixture: Chain) -> Table:
    """The target's joint law of gamma + 1 tokens."""
    return {t: float(w) for t, w in target_law(model(fixture, True), GAMMA + 1).items()}


def emission_table(fixture: Chain, onehot: bool, rule: Rule = token_rule) -> Table:
    """The law of what one call emits under a rule: its length is the number of accepted drafts + 1."""
    table: dict[tuple[int, ...], Fraction] = {}
    own = model(fixture, onehot)
    for drafts, probability in draft_sequences(own, GAMMA):
        for tokens, weight in rule(trial_of(own, drafts)):
            table[tokens] = table.get(tokens, Fraction(0)) + probability * weight
    return {t: float(w) for t, w in table.items()}


def completed_table(fixture: Chain, onehot: bool, rule: Rule) -> Table:
    """The joint law of gamma + 1 tokens under a rule, short outputs completed with the target."""
    return {t: float(w) for t, w in emitted_law(model(fixture, onehot), GAMMA, rule).items()}


def mean_accepted(table: Table) -> tuple[float, float]:
    """Mean and variance of the number of accepted drafts under an emission table."""
    mean = sum(w * (len(t) - 1) for t, w in table.items())
    return mean, sum(w * (len(t) - 1 - mean) ** 2 for t, w in table.items())


def rows_after(levels: Levels, text: npt.NDArray[np.int64], length: npt.NDArray[np.int64]) -> F64:
    """``[N, V]``: the row after the first ``length[n]`` tokens of ``text[n]``; only the last ones count.

    The fixture becomes a model of texts of any length: its last level serves every longer prefix.
    """
    depth = np.minimum(length, len(levels) - 1)
    out = np.empty((len(text), VOCABULARY))
    for d, level in enumerate(levels):
        (here,) = np.nonzero(depth == d)
        before = tuple(text[here, length[here] - d + i] for i in range(d))
        out[here] = level[before] if d else level
    return out


def long_table(fixture: Chain, length: int) -> Table:
    """The target's joint law of ``length`` tokens as :func:`rows_after` continues the fixture."""
    table: Table = {(): 1.0}
    for n in range(length):
        texts = np.array(list(table), np.int64).reshape(len(table), n)
        laws = rows_after(fixture.p, texts, np.full(len(texts), n))
        grown = zip(table.items(), laws, strict=True)
        table = {(*t, v): w * float(law[v]) for (t, w), law in grown for v in range(VOCABULARY)}
    return table


def choose(laws: F64, uniforms: F64) -> npt.NDArray[np.int64]:
    """Inverse CDF of ``[N, V]`` laws with ``[N]`` uniforms."""
    above = np.cumsum(laws, axis=1) > uniforms[:, None] * laws.sum(axis=1)[:, None]
    return np.asarray(np.argmax(above, axis=1), np.int64)
