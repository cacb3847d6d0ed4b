"""`python -m trellis`."""

import sys

from trellis.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
