"""Every setting of a run: frozen, nested dataclasses that are validated when created.

A run is a pure function of its settings and of the software's versions. `config.json` in the run
folder holds them all. A value that follows from other settings is a property, never a setting.
"""

from trellis.config.estimation import EstimationConfig
from trellis.config.policy import PolicyConfig
from trellis.config.sampling import SamplingConfig, VineConfig
from trellis.config.search import SearchConfig
from trellis.config.step import (
    DEFAULT_DAMPING,
    METHODS,
    SEARCH_METHODS,
    UPDATE_RULES,
    StepConfig,
)
from trellis.config.train import CONFIG_FILE, TrainConfig, from_json, to_json

__all__ = [
    "CONFIG_FILE",
    "DEFAULT_DAMPING",
    "METHODS",
    "SEARCH_METHODS",
    "UPDATE_RULES",
    "EstimationConfig",
    "PolicyConfig",
    "SamplingConfig",
    "SearchConfig",
    "StepConfig",
    "TrainConfig",
    "VineConfig",
    "from_json",
    "to_json",
]
