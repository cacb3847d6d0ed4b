"""Runs a policy that `trellis export --format numpy` has written. It needs NumPy and nothing else.

policy = Policy("policy.npz")
action = policy(observation[None])[0]  # The first axis is the batch.
"""

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
    "round": lambda x, _: np.rint(x),
    "tanh": lambda x, _: np.tanh(x),
    "reshape": lambda x, shape: x.reshape(len(x), *shape),
    "transpose": lambda x, order: x.transpose(order),
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
            self.inputs = arrays["inputs"].tolist()
            self.dtypes = arrays["dtypes"].tolist()
            self.chains = {}
            for name in arrays.files:
                if "/" in name:  # chain/index/operation
                    chain, _, operation = name.split("/")
                    self.chains.setdefault(chain, []).append((operation, arrays[name]))

    def __call__(self, *arrays):
        """Return the actions for a batch of observations: an array for each name of `inputs`."""
        features = [
            self.run(f"input{index}", np.asarray(array, dtype))
            for index, (array, dtype) in enumerate(zip(arrays, self.dtypes, strict=True))
        ]
        mask = None
        if any(operation == "add_mask" for operation, _ in self.chains["policy"]):
            mask = features.pop()
        joined = features[0] if len(features) == 1 else np.concatenate(features, axis=1)
        return self.run("policy", joined, mask)

    def run(self, chain, x, mask=None):
        """Return the result of a chain of operations."""
        for operation, constant in self.chains[chain]:
            x = x + mask if operation == "add_mask" else OPERATIONS[operation](x, constant)
        return x
