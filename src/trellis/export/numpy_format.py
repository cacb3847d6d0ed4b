"""Writes a program as one .npz file of constants, without pickle, that `numpy_policy.py` runs.

| array | content |
|---|---|
| `inputs`, `dtypes` | name and data type of each input |
| `input0/000/reshape`, … | operations on the first input, in order, each with its constant |
| `policy/000/subtract`, … | operations on the joined inputs |
| `about` | where the policy comes from, as JSON |
"""

import io
import json
from collections.abc import Mapping

import numpy as np

from trellis.export import numpy_policy
from trellis.export.check import Run
from trellis.export.program import Program


def serialize(program: Program, about: Mapping[str, str]) -> bytes:
    """Return the content of the file."""
    arrays = {
        "about": np.array(json.dumps(dict(about))),
        "inputs": np.array([part.name for part in program.inputs]),
        "dtypes": np.array([part.dtype.name for part in program.inputs]),
    }
    chains = {f"input{i}": part.operations for i, part in enumerate(program.inputs)}
    for chain, operations in {**chains, "policy": program.operations}.items():
        for index, (name, constant) in enumerate(operations):
            empty = np.zeros(0, np.float32)
            arrays[f"{chain}/{index:03d}/{name}"] = empty if constant is None else constant
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def open_policy(data: bytes) -> Run:
    """Return the policy in the content of a file."""
    policy = numpy_policy.Policy(io.BytesIO(data))
    return lambda arrays: policy(*arrays)
