"""What the rules for the length of one draft have in common."""

from __future__ import annotations

import numpy as np

from flashspec.errors import ContractError, unknown_name
from flashspec.selectors.types import F64, NONE, Arms, Observation


def check_draft(arms: Arms, name: str, selector: str) -> int:
    """The index of the draft whose length the rule sets.

    Raises:
        ContractError: no draft was named.
        UnknownName: a draft that is not there.
    """
    if not name:
        raise ContractError(f"selector {selector} needs a draft: {selector}:DRAFT, for instance {selector}:ngram")
    if name == NONE or name not in arms.drafts:
        raise unknown_name("draft", name, list(arms.drafts[1:]))
    return arms.drafts.index(name)


def prefer(arms: Arms, draft: int, length: float) -> F64:
    """``[M]``: 1 for the draft's longest arm of at most ``length``, else its shortest; shorter ones less; none 1/8.

    Where the preferred length is not active the next shorter one is, and at last plain decoding.
    """
    mine = arms.draft == draft
    wanted = max(float(length), float(arms.length[mine].min()))
    rank = 0.25 + 0.5 * arms.length / (2.0 * arms.length.max())
    fits = mine & (arms.length <= wanted)
    best = fits & (arms.length == arms.length[fits].max())
    return np.where(best, 1.0, np.where(fits, rank, np.where(arms.draft == 0, 0.125, 0.0)))


def judged(seen: Observation) -> bool:
    """Whether the step tells if the draft was accepted as offered: it was not cut, and something was offered."""
    return seen.offered > 0 and seen.kept == seen.accepted + 1
