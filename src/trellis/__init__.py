"""Trellis: Trust Region Policy Optimization (Schulman et al., 2015) as real software."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.agent import TRPO
    from trellis.optimization.methods import StepConfig
    from trellis.runs.config import EstimationConfig, PolicyConfig, SamplingConfig, TrainConfig
    from trellis.trainer import Trainer

__version__ = "0.1.0"
__all__ = [
    "TRPO",
    "EstimationConfig",
    "PolicyConfig",
    "SamplingConfig",
    "StepConfig",
    "TrainConfig",
    "Trainer",
]

# Loaded when first asked for, so that `trellis --help` does not wait for a compiler.
_HOMES = {
    "TRPO": "trellis.agent",
    "StepConfig": "trellis.optimization.methods",
    "EstimationConfig": "trellis.runs.config",
    "PolicyConfig": "trellis.runs.config",
    "SamplingConfig": "trellis.runs.config",
    "TrainConfig": "trellis.runs.config",
    "Trainer": "trellis.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trellis' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
