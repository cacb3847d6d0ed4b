"""Lists the collective operations of a compiled program: what devices send to each other.

The step needs sums and maxima over states only, so their number and size depend on the policy and
not on the samples. Sampling needs none.
"""

import re
from typing import NamedTuple

KINDS = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
LINE = re.compile(rf"= (?P<shape>.+?) (?P<kind>{KINDS})(-start)?\((?P<rest>.*)$", re.MULTILINE)
SHAPE = re.compile(r"(pred|[suf]\d+)\[([\d,]*)\]")
NAME = re.compile(r'op_name="([^"]*)"')
BITS = re.compile(r"\d+")


class Collective(NamedTuple):
    """A collective operation of a compiled program."""

    kind: str
    """Kind of the operation, such as all-reduce."""
    num_bytes: int
    """Size of its result in bytes."""
    name: str
    """Where it comes from in the Python code, with the parts of the iteration as scopes."""

    @property
    def in_loop(self) -> bool:
        """Whether a loop repeats it: conjugate gradient, or the line search."""
        return "while" in self.name

    @property
    def in_sampling(self) -> bool:
        """Whether it belongs to the sampling scan."""
        return "/sampling/" in self.name


def collectives(program_text: str) -> list[Collective]:
    """Return the collective operations in the text of a compiled program.

    Args:
        program_text: HLO, from `jax.jit(f).lower(…).compile().as_text()`.
    """
    found = []
    for match in LINE.finditer(program_text):
        name = NAME.search(match["rest"])
        size = sum(_size(*shape) for shape in SHAPE.findall(match["shape"]))
        found.append(Collective(match["kind"], size, name[1] if name else ""))
    return found


def sent_per_iteration(
    found: list[Collective], cg_iterations: int, evaluations: int
) -> tuple[int, int]:
    """Return the number and the bytes of the collectives of an iteration.

    Args:
        found: Collectives of the program.
        cg_iterations: Iterations of conjugate gradient.
        evaluations: Evaluations of the line search.
    """
    number = num_bytes = 0
    for each in found:
        # A product with F has the size of θ; an evaluation sends single numbers.
        times = 1 if not each.in_loop else evaluations if each.num_bytes <= 16 else cg_iterations
        number, num_bytes = number + times, num_bytes + times * each.num_bytes
    return number, num_bytes


def _size(kind: str, shape: str) -> int:
    """Return the size in bytes of an array of this type and shape."""
    bits = BITS.search(kind)
    count = 1
    for length in filter(None, shape.split(",")):
        count *= int(length)
    return count * (int(bits[0]) // 8 if bits else 1)
