"""Wrong drafters, each with one fault, and the checks that must fail it.

``flashspec-conformance drafter --drafter flashspec_conformance.drafters.mutants.MODULE:NAME`` judges one.
"""

from flashspec_conformance.drafters.mutants import drawing, remembering, telling
from flashspec_conformance.drafters.mutants.zoo import ZOO, Mutant

__all__ = ["ZOO", "Mutant", "drawing", "remembering", "telling"]
