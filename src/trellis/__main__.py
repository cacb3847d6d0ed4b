"""`python -m trellis`."""

import sys
from pathlib import Path

import trellis

if __name__ == "__main__":
    # Python puts the current folder first on the import path. Commands search it only if their
    # arguments name a module, and never before installed packages.
    first, home = Path(sys.path[0]), Path(trellis.__file__).parents[1]
    if not sys.flags.safe_path and first == Path.cwd() != home:
        del sys.path[0]

from trellis.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
