"""Loads the conformance plugin, so that its markers and options exist in every test run."""

pytest_plugins = ("flashspec_conformance.plugin",)
