"""Adapters to accept/reject functions of other projects. Each loads what it wraps when it is asked for it."""
