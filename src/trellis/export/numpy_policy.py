"""Runs a policy that `trellis export --format numpy` has written. It needs NumPy and nothing else.

policy = Policy("policy.npz")
action = policy(observation[None])[0]  # The first axis is the batch.

A policy with memory also takes and returns what it carries from step to step:

carry = policy.initial_carry()         # Where an episode starts.
outputs = policy(observation[None], carry)
action, carry = outputs["action"][0], outputs["next_carry"]
"""

import json
import operator

import numpy as np


def convolve(x, kernel):
    """Return the products of a kernel with all windows, in steps of two pixels."""
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::2, ::2]
    return np.tensordot(windows, kernel, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def mean_pool(x, side):
    """Return the means of blocks of side × side pixels."""
    rows, columns = (size // side for size in x.shape[2:])
    x = x[:, :, : rows * side, : columns * side]
    return x.reshape(*x.shape[:2], rows, side, columns, side).mean(axis=(3, 5))


def argmax(x, sizes):
    """Return the index of the largest value in each group of columns."""
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    return np.stack([part.argmax(axis=1) for part in parts], axis=1)


OPERATIONS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "matmul": operator.matmul,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "round": np.rint,
    "tanh": np.tanh,
    "reshape": lambda x, shape: x.reshape(len(x), *shape),
    "transpose": lambda x, order: x.transpose(order),
    "columns": lambda x, edges: x[:, edges[0] : edges[1]],
    "concatenate": lambda *parts: np.concatenate(parts, axis=1),
    "mean_pool": mean_pool,
    "cast": lambda x, like: x.astype(like.dtype),
    "one_hot": lambda x, c: (x[:, c[0]] == c[1]).astype(np.float32),
    "convolve": convolve,
    "argmax": argmax,
}


class Policy:
    """A policy; call it with a batch of observations."""

    def __init__(self, file):
        with np.load(file, allow_pickle=False) as arrays:
            if "program" not in arrays.files:
                raise ValueError(f"{file} is from an earlier version of Trellis: export it again")
            program = json.loads(arrays["program"].item())
            self.inputs = [name for name, _, _ in program["inputs"]]
            self.dtypes = [dtype for _, dtype, _ in program["inputs"]]
            self.shapes = [shape for _, _, shape in program["inputs"]]
            self.outputs = program["outputs"]  # Pairs of a name and the number of its value.
            self.nodes = [
                (name, values, arrays[constant] if constant else None)
                for name, values, constant in program["nodes"]
            ]

    def initial_carry(self, count=1):
        """Return what a policy with memory carries where `count` episodes start."""
        return np.zeros((count, *self.shapes[-1]), np.float32)

    def __call__(self, *arrays):
        """Return the actions for a batch of observations: an array for each name of `inputs`.

        With more than one output, such as the next carry, the result is a dictionary by name.
        """
        pairs = zip(arrays, self.dtypes, strict=True)
        values = [np.asarray(array, dtype) for array, dtype in pairs]
        for name, numbers, constant in self.nodes:
            arguments = [values[number] for number in numbers]
            arguments += [] if constant is None else [constant]
            values.append(OPERATIONS[name](*arguments))
        outputs = {name: values[number] for name, number in self.outputs}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))
