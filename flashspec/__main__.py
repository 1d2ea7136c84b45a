"""``python -P -m flashspec``: the same as the command ``flashspec``."""

import sys

from flashspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
