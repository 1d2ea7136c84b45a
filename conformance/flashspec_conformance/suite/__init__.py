"""The tests of the suite, one module a clause family. Run them through ``flashspec-conformance``."""
