"""Counts the cores that this process may use.

A container, `taskset` or a batch system may give a process fewer cores than the machine has. More
threads or worker processes than that would only wait for each other.
"""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
