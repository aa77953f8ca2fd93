"""`python -m bsprof` is `bsprof`."""

import sys

from bsprof.cli import main

if __name__ == "__main__":
    sys.exit(main())
