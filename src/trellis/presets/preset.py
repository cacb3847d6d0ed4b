"""The type of a preset: settings with a description."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trellis.config import EstimationConfig, PolicyConfig, SamplingConfig, StepConfig


@dataclass(frozen=True)
class Preset:
    """Settings that a run can start from. Its other fields are those of `TrainConfig`."""

    about: str
    """Description in one line."""
    env_options: Mapping[str, Any] = field(default_factory=dict)
    total_steps: int = 1_000_000
    eval_every: int = 100_000
    eval_drawn: bool = False
    checkpoint_every: int = 100_000
    max_iterations: int | None = None
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    estimation: EstimationConfig = field(default_factory=EstimationConfig)
    step: StepConfig = field(default_factory=StepConfig)
