"""Writes a program as one .npz file of constants, without pickle, that `numpy_policy.py` runs.

| array | content |
|---|---|
| `program` | inputs, nodes and outputs as JSON |
| `constant0`, … | constants of the nodes |
| `about` | where the policy comes from, as JSON |
"""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trellis.export import numpy_policy
from trellis.export.check import Run
from trellis.export.program import Program


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file."""
    constants: dict[str, np.ndarray] = {}
    nodes = []
    for name, values, constant in program.nodes:
        key = ""
        if constant is not None:
            key = f"constant{len(constants)}"
            constants[key] = constant
        nodes.append([name, values, key])
    described = {
        "inputs": [[part.name, part.dtype.name, part.shape] for part in program.inputs],
        "nodes": nodes,
        "outputs": [[part.name, part.value] for part in program.outputs],
    }
    texts = {"about": dict(about), "program": described}
    arrays = {key: np.array(json.dumps(text)) for key, text in texts.items()}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays, **constants)
    return file.getvalue()


def open_policy(data: bytes, program: Program) -> Run:
    """Return the policy in the content of a file."""
    policy, several = numpy_policy.Policy(io.BytesIO(data)), len(program.outputs) > 1

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs: Any = policy(*arrays)
        return [outputs[part.name] for part in program.outputs] if several else [outputs]

    return run
