"""Writes a program as StableHLO, serialized by `jax.export`, with a batch of any size.

    exported = jax.export.deserialize(Path("policy.stablehlo").read_bytes())
    action = exported.call(observation[None])[0]

JAX computes in 32 bits by default, so actions are float32 or int32. A program with more than one
output, such as the next carry of a policy with memory, returns a dictionary by name.
"""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from trellis.arrays import Array
from trellis.export import numpy_policy
from trellis.export.check import Run
from trellis.export.program import Program
from trellis.policies.convolutions import STRIDE

PLATFORMS = ("cpu", "cuda", "tpu")
"""Platforms that the file can run on."""


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file, which has no place for `about`."""
    import jax.export

    del about

    batch = jax.export.symbolic_shape("batch")
    arguments = [
        jax.ShapeDtypeStruct((*batch, *part.shape), jax.dtypes.canonicalize_dtype(part.dtype))
        for part in program.inputs
    ]

    def act(*arrays: Array) -> Array | dict[str, Array]:
        values = [*arrays]
        for name, numbers, constant in program.nodes:
            arguments = [values[number] for number in numbers]
            arguments += [] if constant is None else [constant]
            values.append(OPERATIONS[name](*arguments))
        outputs = {part.name: values[part.value] for part in program.outputs}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    exported = jax.export.export(jax.jit(act), platforms=PLATFORMS)(*arguments)
    return bytes(exported.serialize())


def open_policy(data: bytes, program: Program) -> Run:
    """Return the policy in the content of a file."""
    import jax.export

    exported = jax.export.deserialize(bytearray(data))

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = exported.call(*map(jnp.asarray, arrays))
        if len(program.outputs) == 1:
            return [np.asarray(outputs)]
        return [np.asarray(outputs[part.name]) for part in program.outputs]

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
    "round": jnp.rint,
    "tanh": jnp.tanh,
    "reshape": lambda x, shape: jnp.reshape(x, (x.shape[0], *shape)),
    "transpose": lambda x, order: jnp.transpose(x, tuple(map(int, order))),
    "concatenate": lambda *parts: jnp.concatenate(parts, axis=1),
    "cast": lambda x, like: x.astype(jax.dtypes.canonicalize_dtype(like.dtype)),
    "convolve": _convolve,
    "argmax": _argmax,
}
