"""All checks of drafters, in the order in which they run."""

from __future__ import annotations

from flashspec_conformance.drafters import caches, laws, shape
from flashspec_conformance.drafters.subject import load

__all__ = ["CHECKS", "load"]

CHECKS = (*shape.CHECKS, *caches.CHECKS, *laws.CHECKS)
