"""Loads the conformance plugin, so that its markers and options exist in every test run."""

from importlib.util import find_spec

pytest_plugins = ("flashspec_conformance.plugin",)
collect_ignore = [] if find_spec("triton") else ["flashspec/hf/graph/kernels.py"]
"""Doctest collection would import it."""
