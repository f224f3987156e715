"""`python -m fedbo` is the command `fedbo`."""

import sys

from fedbo.cli import main

if __name__ == "__main__":
    sys.exit(main())
