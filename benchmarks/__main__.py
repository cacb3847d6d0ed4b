"""Measures all speed figures: `make bench`, or `make bench WHAT=step` for one group.

Each figure is a ratio of two things measured in one run. Use an idle machine.
"""

import importlib
import sys

GROUPS = ("step", "environments", "vine", "atari", "cluster", "training")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in GROUPS]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(GROUPS)}")
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
