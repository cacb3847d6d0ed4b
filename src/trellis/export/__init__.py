"""Exports a policy as one file that runs without Trellis and without JAX.

    trellis export runs/hopper --format onnx

The file maps observations, as the environment returns them, to the actions that
`SavedPolicy.act(observation, deterministic=True)` returns. Normalization, network and action
mapping are one graph. The export runs that graph in its own runtime on 1,000 observations and
compares the actions with ours before it writes the file.

| format | file | runs with |
|---|---|---|
| onnx | `policy.onnx` | ONNX Runtime and other ONNX runtimes |
| stablehlo | `policy.stablehlo` | `jax.export.deserialize`, and compilers that read StableHLO |
| numpy | `policy.npz`, and `numpy_policy.py` to run it | NumPy |
"""

from trellis.export.check import OBSERVATIONS
from trellis.export.program import ExportError
from trellis.export.write import FORMATS, Exported, Format, export_policy

__all__ = ["FORMATS", "OBSERVATIONS", "ExportError", "Exported", "Format", "export_policy"]
