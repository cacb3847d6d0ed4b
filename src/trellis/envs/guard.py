"""Protects the process from changes that the code of an environment makes.

An environment is ordinary Python code. It may replace signal handlers, so that Ctrl-C no longer
stops a run. It may close standard output, or change how NumPy treats overflow. It may fork a
process that returns and would train a second time. `Guard` surrounds every call and undoes these
changes.
"""

import os
import sys
from typing import Self

import numpy as np

from trellis.signals import restore_handlers


class Guard:
    """Context manager that undoes what a call of an environment changed in this process."""

    def __enter__(self) -> Self:
        self._pid, self._errors = os.getpid(), np.errstate()
        self._errors.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._pid:  # This is a fork that returned: only its parent continues.
            os._exit(1)
        self._errors.__exit__(None, None, None)
        restore_handlers()
        restore_streams()


def restore_streams() -> None:
    """Open standard output and standard error again if they were closed.

    Otherwise the next file that is opened would receive what is printed.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        stream = getattr(sys, name)
        if stream is not None and stream.closed:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
