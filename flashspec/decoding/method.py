"""Which acceptance rule a pool is decoded with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flashspec.drafts.protocol import Drafter
from flashspec.errors import CapabilityError, ContractError

AUTO = "auto"
METHODS = (AUTO, "token", "block", "path")


def check_method(method: str) -> None:
    """Refuse what names no rule.

    Raises:
        ContractError: the rule is unknown; the known ones are listed.
    """
    if method not in METHODS:
        raise ContractError(f"method is {method!r}; allowed: {', '.join(METHODS)}")


def method_of(method: str, declared: Iterable[str], drafters: Sequence[Drafter]) -> str:
    """The rule to decode with: the one asked for, or the best that the backend declares for these drafts.

    ``auto`` is ``path`` where no draft is sampled: it accepts as often as the token rule, and the
    text of a seed is then that of plain sampling, whatever was drafted (clause PTH-2). Sampled
    drafts get the token rule, since path does not read their law.

    Raises:
        ContractError: the rule is unknown.
        CapabilityError: the backend does not declare the rule that was asked for.
    """
    check_method(method)
    able = sorted(declared)
    if method == AUTO:
        return "path" if "path" in able and all(drafter.free for drafter in drafters) else "token"
    if method not in able:
        raise CapabilityError(f"method {method} is not declared by the backend; declared: {', '.join(able)}")
    return method
