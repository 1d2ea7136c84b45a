"""Models with a few tokens whose rows depend on the prefix, as probabilities, and the tables of their laws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64, Knobs
from flashspec_conformance.chain import Levels, chain

Tokens: TypeAlias = tuple[int, ...]
Table: TypeAlias = Mapping[Tokens, float]


@attrs.frozen(eq=False)
class Laws:
    """Target and drafter; level j of each is indexed by the j tokens before it."""

    name: str
    p: Levels
    """``gamma + 1`` levels."""
    q: Levels
    """``gamma`` levels."""

    @property
    def gamma(self) -> int:
        """Number of drafts."""
        return len(self.q)

    @property
    def vocabulary(self) -> int:
        """V."""
        return int(self.p[0].shape[-1])

    def drafts(self) -> Iterator[tuple[Tokens, float]]:
        """Every draft sequence with its probability."""
        for x in itertools.product(range(self.vocabulary), repeat=self.gamma):
            yield x, float(np.prod([self.q[j][x[: j + 1]] for j in range(self.gamma)]))

    def rows(self, drafts: I64) -> tuple[F64, F64]:
        """``[N, gamma + 1, V]`` and ``[N, gamma, V]`` along ``[N, gamma]`` drafts; -1 reads as token 0."""
        x = np.maximum(drafts, 0)
        p = [at(self.p[j], x[:, :j]) for j in range(self.gamma + 1)]
        q = [at(self.q[j], x[:, :j]) for j in range(self.gamma)]
        return np.stack(p, axis=1), np.stack(q, axis=1)

    def joint(self) -> Table:
        """The target's law of ``gamma + 1`` tokens."""
        return self.completed({(): 1.0})

    def completed(self, emitted: Table) -> Table:
        """The law of the first ``gamma + 1`` tokens: short outputs go on with the target, long ones are cut."""
        table = dict.fromkeys(itertools.product(range(self.vocabulary), repeat=self.gamma + 1), 0.0)
        for tokens, weight in emitted.items():
            head = tokens[: self.gamma + 1]
            for rest in itertools.product(range(self.vocabulary), repeat=self.gamma + 1 - len(head)):
                whole = (*head, *rest)
                steps = range(len(head), self.gamma + 1)
                table[whole] = table.get(whole, 0.0) + weight * float(
                    np.prod([self.p[j][whole[: j + 1]] for j in steps])
                )
        return table

    def best(self, sampled: bool) -> float:
        """The mean number of drafts that the token rule accepts (one-hot drafts: that it accepts with p(x))."""
        mean = 0.0
        for x, weight in self.drafts():
            reached = weight
            for j in range(self.gamma):
                p, q = float(self.p[j][x[: j + 1]]), float(self.q[j][x[: j + 1]])
                reached *= min(1.0, p / q) if sampled else p
                mean += reached
        return mean


def at(level: F64, prefix: I64) -> F64:
    """``[N, V]``: the rows of a level for ``[N, j]`` prefixes."""
    shape = (len(prefix), level.shape[-1])
    return np.asarray(level[tuple(prefix.T)] if prefix.shape[1] else np.broadcast_to(level, shape))


def total_variation(first: Table, second: Table) -> float:
    """Half the sum of the absolute differences."""
    keys = first.keys() | second.keys()
    return sum(abs(first.get(k, 0.0) - second.get(k, 0.0)) for k in keys) / 2


def _tempered(level: F64, temperature: float) -> F64:
    powers = np.asarray(level) ** (1.0 / temperature)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def chained(target: float, draft: float) -> Laws:
    """The suite's chain of two drafts over four tokens, at a temperature for each of the two models."""
    own = chain(Knobs(1.0), Knobs(1.0), "float64")
    name = f"chain p^(1/{target:g}) q^(1/{draft:g})"
    return Laws(name, tuple(_tempered(x, target) for x in own.p), tuple(_tempered(x, draft) for x in own.q))


def single() -> Laws:
    """One draft, a residual of three tokens, and a last row that depends on the token before it."""
    p = np.array([0.35, 0.35, 0.25, 0.05])
    q = np.array([0.30, 0.02, 0.03, 0.65])
    return Laws("V4", (p, chain(Knobs(1.0), Knobs(1.0), "float64").p[1]), (q,))


def fixtures() -> tuple[Laws, ...]:
    """What the verdict ``law`` is given on."""
    return chained(0.7, 1.3), chained(1.3, 0.7), single()
