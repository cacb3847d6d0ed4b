"""`python -m trellis`."""

import sys
from pathlib import Path

import trellis
from trellis.cli.main import main

if __name__ == "__main__":
    # Python puts the current folder first on the import path; commands search it only if their
    # arguments name a module.
    first, home = Path(sys.path[0]), Path(trellis.__file__).parents[1]
    if not sys.flags.safe_path and first == Path.cwd() != home:
        del sys.path[0]
    sys.exit(main())
