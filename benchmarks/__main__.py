"""Measures all speed figures: `make bench`, or `make bench WHAT=step` for one group.

Each figure is a ratio of two things measured in one run. Use an idle machine.
"""

import importlib
import sys

GROUPS = ("step", "environments", "vine", "atari", "cluster", "training", "memory")
BY_NAME = ("wallclock", "jax")
"""Groups that run only if they are named: they take hours, or need other packages."""
MODULES = {"jax": "jax_envs"}
"""Modules of groups that have another name."""


def main(names: list[str]) -> int:
    known = (*GROUPS, *BY_NAME)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}: choose from {', '.join(known)}")
        return 2
    missed = 0
    for name in names or GROUPS:
        print(name)
        module = importlib.import_module(f"benchmarks.{MODULES.get(name, name)}")
        for figure in module.run():
            print(f"  {figure}")
            missed += not figure.holds
    print("all bounds met" if not missed else f"{missed} bound(s) missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
