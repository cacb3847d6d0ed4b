"""Measures all speed figures: `make bench`, or `make bench WHAT=step` for one group.

Each figure is a ratio of two things measured in one run. Use an idle machine.
"""

import importlib
import sys

GROUPS = ("step", "environments", "vine", "atari", "cluster", "training", "memory")
BY_NAME = ("wallclock",)
"""Groups that run only if they are named: they take hours, and keep what is finished."""


def main(names: list[str]) -> int:
    known = (*GROUPS, *BY_NAME)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(known)}")
        return 2
    missed = 0
    for name in names or GROUPS:
        print(name)
        for figure in importlib.import_module(f"benchmarks.{name}").run():
            print(f"  {figure}")
            missed += not figure.holds
    print("all bounds met" if not missed else f"{missed} bound(s) missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
