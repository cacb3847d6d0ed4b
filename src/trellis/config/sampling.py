"""Settings of the samples of an iteration: single path and vine (Sec. 5)."""

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from trellis.config.checks import AT_LEAST_1, Checked


@dataclass(frozen=True)
class VineConfig(Checked):
    """Settings of the vine sampler (Sec. 5.2)."""

    trunks: int = field(default=16, metadata=AT_LEAST_1)
    """Number of trunks that advance in parallel. When a trunk ends, a new one starts from ρ₀."""
    trunk_length: int = field(default=1000, metadata=AT_LEAST_1)
    """Time steps per parallel trunk and iteration."""
    states: int = field(default=125, metadata=AT_LEAST_1)
    """N in Sec. 5.2: number of trunk states that branch (the rollout set)."""
    actions: int = field(default=4, metadata=AT_LEAST_1)
    """K in Sec. 5.2: actions tried per branch state. The proposal `every` tries all actions."""
    rollout_length: int = field(default=100, metadata=AT_LEAST_1)
    """Maximum time steps per rollout, including its first action."""
    proposal: Literal["auto", "policy", "uniform", "mixture", "every"] = "auto"
    """q in Sec. 5.2: how branch actions are chosen: by the policy, uniformly, by either with equal
    chances (mixture), or every action once.
    auto: policy for continuous actions, every for at most K discrete actions, else uniform."""
    common_random_numbers: bool = True
    """Whether all rollouts from a state share their random numbers (actions and environment)."""
    bootstrap: bool = False
    """Whether the critic estimates the return after a cut rollout. The paper counts it as 0."""
    cut_value: float = 0.0
    """Value of the state in which a rollout is cut, if no critic estimates it."""

    def __post_init__(self):
        super().__post_init__()
        visited = self.trunks * self.trunk_length
        if self.states > visited:
            raise ValueError(
                f"states must be at most trunks × trunk_length = {visited:,}, got {self.states}"
            )


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """Settings of the samples of an iteration (Sec. 5)."""

    num_envs: int = field(default=32, metadata=AT_LEAST_1)
    """Number of parallel environments (single path)."""
    steps_per_env: int = field(default=64, metadata=AT_LEAST_1)
    """Time steps per environment and iteration (single path)."""
    whole_paths: bool = False
    """Whether every iteration starts new episodes, as in the paper. Otherwise episodes continue."""
    sampler: Literal["single-path", "vine"] = "single-path"
    """Sampler: single path (Sec. 5.1), or vine (Sec. 5.2), which needs restorable environments."""
    vine: VineConfig = field(default_factory=VineConfig)
    """Settings of the vine sampler."""
    shards: int = field(default=1, metadata=AT_LEAST_1)
    """Number of equal parts of the environments, for the workers of a cluster. Each shard has its
    own random streams, so this number changes the result; the number of workers does not."""

    def __post_init__(self):
        super().__post_init__()
        parts = {"trunks": self.vine.trunks, "states": self.vine.states}
        for name, value in (parts if self.is_vine else {"num_envs": self.num_envs}).items():
            if value % self.shards:
                raise ValueError(
                    f"{name} must be a multiple of shards ({self.shards}), got {value}"
                )

    @property
    def is_vine(self) -> bool:
        """Whether the sampler is vine."""
        return self.sampler == "vine"

    @property
    def part(self) -> "SamplingConfig":
        """Settings of one shard."""
        vine, n = self.vine, self.shards
        if self.is_vine:
            vine = dataclasses.replace(vine, trunks=vine.trunks // n, states=vine.states // n)
            return dataclasses.replace(self, vine=vine, shards=1)
        return dataclasses.replace(self, num_envs=self.num_envs // n, shards=1)

    @property
    def paths(self) -> int:
        """Number of parallel paths: environments, or trunks with vine."""
        return self.vine.trunks if self.is_vine else self.num_envs

    @property
    def path_length(self) -> int:
        """Time steps per path and iteration."""
        return self.vine.trunk_length if self.is_vine else self.steps_per_env

    @property
    def starts_new_episodes(self) -> bool:
        """Whether every iteration starts with new episodes."""
        return self.is_vine or self.whole_paths

    @property
    def batch_size(self) -> int:
        """Number of path states per iteration."""
        return self.paths * self.path_length

    @property
    def most_steps(self) -> int:
        """Planned simulator steps per iteration.

        With vine, rollouts that end early need fewer. The proposal `every` needs more if the
        environment has more actions than `actions`.
        """
        vine = self.vine
        branches = vine.states * vine.actions * vine.rollout_length if self.is_vine else 0
        return self.batch_size + branches
