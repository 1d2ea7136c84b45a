"""A small plain verifier made of exchangeable rules: the body that mutants alter.

It shares no arithmetic with the spec or with any backend, so that a mutant is a fault in code of
its own. Unaltered it is conformant.
"""
