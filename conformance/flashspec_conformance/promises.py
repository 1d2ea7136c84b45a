"""One verdict per promise, so that a user sees which promise is broken: the table from promises to clauses.

A clause may serve several promises. *Law* is what samples of joint laws say, with the resolution that
the law tests state; *rules* is agreement with the spec token for token, which resolves far smaller
errors but is also lost by a rule that is exact in another way.
"""

from __future__ import annotations

from collections.abc import Iterable

from flashspec_conformance.ledger import EXPECTED_FAIL, FAIL, NOT_DECLARED, PASS, UNTESTABLE, UNTESTED, ClauseVerdict

PROMISES: dict[str, str] = {
    "law": "joint laws of emitted tokens are the target's, one call and many rounds",
    "rules": "the spec's token for the same numbers: acceptance, residual, bonus, filters, sampling",
    "length": "accepted run, then one token; counts and padding",
    "range": "ids inside the vocabulary and of positive probability only",
    "purity": "inputs unchanged, outputs of their own",
    "determinism": "the same call gives the same tokens; numbers come from the stated counters",
    "batch_independence": "neighbours, layout, strides and rows that are not read do not matter",
    "proposals": "each kind of proposal is judged by the law that it was drawn from",
    "status": "rows without a law and bad drafts are told and emit nothing wrong",
    "logprobs": "log-probabilities of the target's law",
    "refusals": "what is undeclared or malformed is refused",
    "optimality": "acceptance is as likely as it can be (SHOULD)",
}
"""What each promise says."""

FAMILIES: dict[str, tuple[str, ...]] = {
    "LAW": ("law",),
    "RND": ("law",),
    "TMP": ("rules",),
    "SMX": ("rules",),
    "FLT": ("rules",),
    "SMP": ("rules",),
    "UNI": ("rules",),
    "ACC": ("rules",),
    "RES": ("rules",),
    "BON": ("rules",),
    "GRD": ("rules",),
    "BLK": ("rules",),
    "PTH": ("rules",),
    "TRE": ("rules",),
    "RNK": ("rules",),
    "STP": ("law",),
    "OUT": ("length",),
    "LAY": ("batch_independence",),
    "PRP": ("proposals",),
    "RNG": ("determinism",),
    "PUR": ("purity",),
    "STS": ("status",),
    "LGP": ("logprobs",),
    "CAP": ("refusals",),
    "OPT": ("optimality",),
}
"""Promises of a clause by its family."""

CLAUSES: dict[str, tuple[str, ...]] = {
    "ACC-3": ("rules", "length"),
    "BON-2": ("rules", "length"),
    "BLK-3": ("rules", "length"),
    "BLK-4": ("rules", "determinism"),
    "PTH-2": ("rules", "law"),
    "PTH-3": ("rules", "determinism"),
    "LAY-2": ("length",),
    "LAY-3": ("length",),
    "OUT-2": ("range",),
    "SMP-2": ("rules", "range"),
    "PUR-2": ("determinism",),
    "RND-2": ("determinism",),
    "RNG-4": ("determinism", "batch_independence"),
    "RNK-4": ("rules", "determinism"),
    "PRP-6": ("proposals", "batch_independence"),
    "STS-3": ("status", "batch_independence"),
}
"""Where a clause's promises differ from those of its family."""


def promises_of(clause: str) -> tuple[str, ...]:
    """The promises that a clause serves.

    Raises:
        KeyError: a clause of a family that this table does not know.
    """
    return CLAUSES[clause] if clause in CLAUSES else FAMILIES[clause.partition("-")[0]]


def verdicts(judged: Iterable[ClauseVerdict]) -> dict[str, str]:
    """``pass``, ``fail``, ``expected-fail``, ``not-declared`` or ``untested`` for each promise."""
    found: dict[str, list[str]] = {name: [] for name in PROMISES}
    for clause in judged:
        for name in promises_of(clause.id):
            found[name].append(clause.verdict)
    return {name: _together(given) for name, given in found.items()}


def _together(given: list[str]) -> str:
    for verdict in (FAIL, EXPECTED_FAIL, PASS, UNTESTED):
        if verdict in given:
            return verdict
    return NOT_DECLARED if given and set(given) <= {NOT_DECLARED, UNTESTABLE} else UNTESTED
