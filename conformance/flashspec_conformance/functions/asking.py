"""Putting questions to a function, many at a time, and reading its answers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import numpy as np

from flashspec_conformance.case import F64, I64
from flashspec_conformance.functions.function import LOGITS, OWN, Function
from flashspec_conformance.functions.laws import Tokens


class Misbehaved(Exception):
    """The function raised, or returned something that is no answer."""


@attrs.frozen(eq=False)
class Questions:
    """N requests."""

    p: F64
    """``[N, gamma + 1, V]``."""
    q: F64 | None
    """``[N, gamma, V]``, or None: drafts that were not sampled."""
    drafts: I64
    """``[N, gamma]``."""
    coins: F64
    """``[N, gamma + 1]`` in [0, 1)."""

    def __len__(self) -> int:
        return len(self.drafts)

    def chosen(self, places: Any) -> Questions:
        """Some of the requests, or all of them in another order."""
        q = None if self.q is None else self.q[places]
        return Questions(self.p[places], q, self.drafts[places], self.coins[places])


@attrs.frozen
class Answer:
    """What came out for one request."""

    tokens: Tokens
    accepted: int


def handed(function: Function, questions: Questions) -> tuple[Any, Any, I64, F64 | None]:
    """The arguments as the function takes them, in memory of their own."""

    def rows(laws: F64 | None) -> Any:
        if laws is None:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.log(laws) if function.rows == LOGITS else laws
        return np.array(values, function.dtype, order="C")

    coins = None if function.randomness == OWN else questions.coins.copy()
    return rows(questions.p), rows(questions.q), questions.drafts.copy(), coins


def ask(function: Function, questions: Questions) -> list[Answer]:
    """One answer per request.

    Raises:
        Misbehaved: the function raised, or its answer cannot be read as (tokens, n_accepted).
    """
    p, q, drafts, coins = handed(function, questions)
    try:
        if function.many is not None:
            tokens, accepted = function.many(p, q, drafts, coins)
            return [Answer(_tokens(t), int(n)) for t, n in zip(tokens, accepted, strict=True)]
        return [
            read(function.call(p[i], None if q is None else q[i], drafts[i], None if coins is None else coins[i]))
            for i in range(len(questions))
        ]
    except Exception as error:
        raise Misbehaved(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def read(returned: tuple[Any, Any]) -> Answer:
    """What a call returned, as an answer."""
    tokens, accepted = returned
    return Answer(_tokens(tokens), int(accepted))


def _tokens(tokens: Any) -> Tokens:
    return tuple(np.asarray(tokens, np.int64).ravel().tolist())


def counted(answers: list[Answer]) -> Counter[Tokens]:
    """How often each emission came out."""
    return Counter(answer.tokens for answer in answers)
