"""Verifiers of engines, each asked what matters to somebody who serves with it."""
