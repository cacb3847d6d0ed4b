"""Writes a program as StableHLO, serialized by `jax.export`, with a batch of any size.

    exported = jax.export.deserialize(Path("policy.stablehlo").read_bytes())
    action = exported.call(observation[None])[0]

JAX computes in 32 bits by default, so actions are float32 or int32.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.arrays import Array
from trellis.export import numpy_policy
from trellis.export.check import Run
from trellis.export.program import Operation, Program, has_mask
from trellis.policies.convolutions import STRIDE

PLATFORMS = ("cpu", "cuda", "tpu")
"""Platforms that the file can run on."""


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file, which has no place for `about`."""
    import jax.export

    del about

    batch = jax.export.symbolic_shape("batch")
    arguments = [
        jax.ShapeDtypeStruct(
            (*batch, *(part.space.shape or ())), jax.dtypes.canonicalize_dtype(part.dtype)
        )
        for part in program.inputs
    ]

    def act(*arrays: Array) -> Array:
        features = [
            _run(part.operations, array) for part, array in zip(program.inputs, arrays, strict=True)
        ]
        mask = features.pop() if has_mask(program) else None
        joined = features[0] if len(features) == 1 else jnp.concatenate(features, axis=1)
        return _run(program.operations, joined, mask)

    exported = jax.export.export(jax.jit(act), platforms=PLATFORMS)(*arguments)
    return bytes(exported.serialize())


def open_policy(data: bytes) -> Run:
    """Return the policy in the content of a file."""
    import jax.export

    exported = jax.export.deserialize(bytearray(data))

    def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return np.asarray(exported.call(*map(jnp.asarray, arrays)))

    return run


def _convolve(x: Array, kernel: np.ndarray) -> Array:
    return lax.conv_general_dilated(jnp.asarray(x), jnp.asarray(kernel), (STRIDE, STRIDE), "VALID")


def _argmax(x: Array, sizes: np.ndarray) -> Array:
    parts = jnp.split(x, np.cumsum(sizes)[:-1], axis=1)
    return jnp.stack([jnp.argmax(part, axis=1) for part in parts], axis=1)


OPERATIONS = {
    **numpy_policy.OPERATIONS,
    "minimum": jnp.minimum,
    "maximum": jnp.maximum,
    "round": lambda x, _: jnp.rint(x),
    "tanh": lambda x, _: jnp.tanh(x),
    "reshape": lambda x, shape: jnp.reshape(x, (x.shape[0], *shape)),
    "transpose": lambda x, order: jnp.transpose(x, tuple(map(int, order))),
    "cast": lambda x, like: x.astype(jax.dtypes.canonicalize_dtype(like.dtype)),
    "convolve": _convolve,
    "argmax": _argmax,
}


def _run(operations: Sequence[Operation], x: Array, mask: Array | None = None) -> Array:
    for name, constant in operations:
        x = x + mask if name == "add_mask" else OPERATIONS[name](x, constant)
    return x
