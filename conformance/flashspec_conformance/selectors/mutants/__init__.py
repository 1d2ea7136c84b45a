"""Wrong selectors, each with one fault, and the checks that must fail it.

Most are a shipped selector with one function exchanged; ``flashspec-conformance selector --selector
flashspec_conformance.selectors.mutants.MODULE:NAME`` judges one.
"""

from flashspec_conformance.selectors.mutants import choosing, learning, memory, repairing
from flashspec_conformance.selectors.mutants.zoo import ZOO, Mutant

__all__ = ["ZOO", "Mutant", "choosing", "learning", "memory", "repairing"]
