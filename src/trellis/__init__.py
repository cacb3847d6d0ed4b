"""Trellis: Trust Region Policy Optimization (Schulman et al., 2015) as real software."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trellis.agent import TRPO
    from trellis.config import (
        EstimationConfig,
        PolicyConfig,
        SamplingConfig,
        StepConfig,
        TrainConfig,
    )
    from trellis.policies.saved import SavedPolicy
    from trellis.training.trainer import Trainer

__version__ = "0.2.0"
__all__ = [
    "TRPO",
    "EstimationConfig",
    "PolicyConfig",
    "SamplingConfig",
    "SavedPolicy",
    "StepConfig",
    "TrainConfig",
    "Trainer",
]

# Loaded when first asked for, so that `trellis --help` does not wait for a compiler.
_HOMES = {
    "TRPO": "trellis.agent",
    "StepConfig": "trellis.config",
    "EstimationConfig": "trellis.config",
    "PolicyConfig": "trellis.config",
    "SamplingConfig": "trellis.config",
    "TrainConfig": "trellis.config",
    "SavedPolicy": "trellis.policies.saved",
    "Trainer": "trellis.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trellis' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
