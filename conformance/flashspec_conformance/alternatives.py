"""Rules that are not the token rule. The exact ones must pass the law verdicts, the biased ones must fail them.

Exact rules may well fail determinism and emission clauses: only the law is asked of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from flashspec import rng
from flashspec.contract import Domain, Status, Stream, Uniforms
from flashspec_conformance.case import F64
from flashspec_conformance.plain import judge as plain
from flashspec_conformance.plain import views
from flashspec_conformance.plain.backend import Plain
from flashspec_conformance.plain.block import Block
from flashspec_conformance.plain.judge import Judge, target_law
from flashspec_conformance.plain.rules import Law, Rules
from flashspec_conformance.plain.views import Draws, Outcome, View

CUT_OFTEN = 3
"""Requests whose bonus integer is divisible by this are cut: an event independent of drafts and coins."""


@attrs.frozen(eq=False)
class Alternative:
    """A rule, and whether its law is exact."""

    id: str
    rule: str
    exact: bool
    backend: Plain

    @property
    def judged(self) -> Plain:
        """The backend with the token rule alone, which is all that these rules change; the token rule itself whole."""
        whole = self.backend.capabilities
        methods = whole.methods if self.id == "token_rule" else frozenset({"token"})
        return attrs.evolve(self.backend, capabilities=attrs.evolve(whole, methods=methods))


def _alternative(id: str, rule: str, exact: bool, **changes: Any) -> Alternative:
    numbers = changes.pop("numbers", views.numbers)
    return Alternative(id, rule, exact, Plain(attrs.evolve(Judge(), **changes), name=id, numbers=numbers))


def _as_onehot(own: Judge, view: View) -> Outcome:
    return plain.judge_token(own, attrs.evolve(view, q=lambda j, x: (None, Status.OK)))


def _sampler_match(own: Judge, view: View) -> Outcome:
    """Draw y from p, emit it, go on while it equals the draft."""
    tokens: tuple[int, ...] = ()
    for j in range(view.rows.shape[0]):
        law = target_law(own.rules, view, j)
        tokens = (*tokens, own.bonus(own.rules, view, law, j))
        if j == len(view.drafts) or tokens[-1] != view.drafts[j]:
            break
    return Outcome(tokens, len(tokens) - 1, Status.OK, (0.0,) * len(tokens))


def _draft_numbers(randomness: Stream | Uniforms, width: int) -> Draws:
    draws = views.numbers(randomness, width)
    if isinstance(randomness, Uniforms):
        return draws
    shared = rng.bits(randomness, Domain.DRAFT, np.arange(width + 1)[None, :])
    return attrs.evolve(draws, bonus=shared)


def _cut(view: View) -> bool:
    return int(view.draws.bonus[-1]) % CUT_OFTEN == 0


def _truncated(own: Judge, view: View, last: str) -> Outcome:
    """Cut two accepted drafts to one in some requests, chosen without looking at tokens."""
    right = plain.judge_token(own, view)
    if right.accepted < 2 or not _cut(view):
        return right
    law, x = target_law(own.rules, view, 1), view.drafts[1]
    tokens = {
        "kept": lambda: x,
        "target": lambda: own.bonus(own.rules, view, law, 1),
        "residual": lambda: plain.recover(own.rules, view, law, view.q(1, x)[0], 1, x)[0],
    }
    return Outcome((view.drafts[0], tokens[last]()), 1, Status.OK, (0.0, 0.0))


def _truncating(last: str) -> Callable[[Judge, View], Outcome]:
    return lambda own, view: _truncated(own, view, last)


def _missing(view: View, j: int) -> tuple[int, Status]:
    return (-1, Status.OK) if j == 1 and _cut(view) else plain.read_draft(view, j)


def _low_confidence(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> bool:
    return (q is None or float(q[x]) >= 0.3) and plain.accept(rules, view, law, q, j, x)


def _drops_low_confidence(own: Judge, view: View) -> Outcome:
    """Give up a draft for its small q after seeing it, and draw from p."""

    def read(seen: View, j: int) -> tuple[int, Status]:
        x, status = plain.read_draft(seen, j)
        q = seen.q(j, x)[0] if x >= 0 else None
        return (-1, status) if q is not None and float(q[x]) < 0.3 else (x, status)

    return plain.judge_token(attrs.evolve(own, read=read), view)


def _forced_reject(rules: Rules, view: View, law: Law, q: F64 | None, j: int, x: int) -> tuple[int, Status]:
    """Reject improbable drafts by force: their q row counts as 0, so the token comes from p."""
    return plain.recover(rules, view, law, np.zeros_like(law.p) if q is not None and float(q[x]) < 0.3 else q, j, x)


ALTERNATIVES: dict[str, Alternative] = {
    a.id: a
    for a in (
        _alternative("token_rule", "accept with min(1, p/q), residual [p - q]+", True),
        _alternative("onehot_rule_on_sampled_draft", "accept with p(x), else p without x", True, token=_as_onehot),
        _alternative("sampler_match", "draw y from p, go on while y = x", True, token=_sampler_match),
        _alternative(
            "sampler_match_coupled",
            "the same with the draft's own uniform",
            True,
            token=_sampler_match,
            numbers=_draft_numbers,
        ),
        _alternative(
            "truncated_keeps_token",
            "cut the accepted run blindly, the next accepted draft is the last token",
            True,
            token=_truncating("kept"),
        ),
        _alternative("block_rule", "the longest prefix that passes, from the last draft down", True, token=Block()),
        _alternative(
            "block_rule_with_prefix_share",
            "the same with P in place of S / (S + 1 - P)",
            False,
            token=Block(shorter=lambda u, prefix, mass: u < prefix),
        ),
        _alternative("missing_drafts", "ignore a draft blindly, draw from p", True, read=_missing),
        _alternative(
            "truncated_then_target",
            "cut the accepted run blindly, then draw from p although the draft was accepted",
            False,
            token=_truncating("target"),
        ),
        _alternative(
            "truncated_then_residual",
            "cut the accepted run blindly, then draw from the residual",
            False,
            token=_truncating("residual"),
        ),
        _alternative(
            "low_confidence_dropped",
            "give up a drafted token for its small q, draw from p",
            False,
            token=_drops_low_confidence,
        ),
        _alternative(
            "forced_reject",
            "reject drafts of small q by force with q = 0",
            False,
            accept=_low_confidence,
            recover=_forced_reject,
        ),
    )
}
