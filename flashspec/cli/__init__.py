"""The command line. Thin: it reads options, calls the library and shows what came of it.

Exit codes: 0 done; 1 something failed (weights, files, network, a model that cannot be used);
2 the command line is wrong (an unknown option or name, a value out of range, an empty prompt, a
prompt that cannot be read); 130 Ctrl-C; 141 the reader of the output went away.
"""

from flashspec.cli.run import main

__all__ = ["main"]
