"""What every FlashSpec backend must pass: the suite compares a backend with the spec alone."""

SUITE_VERSION = "2026.12"
"""CalVer of the suite. A vendor claims conformance with one spec version and one suite version."""
