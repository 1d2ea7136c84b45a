"""A backend package of somebody's own, written out by ``flashspec-conformance new-backend``."""
