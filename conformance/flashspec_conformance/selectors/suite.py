"""All checks of selectors, in the order in which they run."""

from __future__ import annotations

from flashspec_conformance.selectors import choices, evidence, keys, pools, purity, refusals
from flashspec_conformance.selectors.subject import load

__all__ = ["CHECKS", "load"]

CHECKS = (
    *purity.CHECKS,
    *evidence.CHECKS,
    *choices.CHECKS,
    *keys.CHECKS,
    *refusals.CHECKS,
    *pools.CHECKS,
)
