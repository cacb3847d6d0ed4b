"""Settings of the gradient-free methods CEM and CMA."""

from dataclasses import dataclass, field

from trellis.config.checks import (
    AT_LEAST_1,
    AT_LEAST_4,
    BETWEEN_0_AND_1,
    NOT_NEGATIVE,
    POSITIVE,
    Checked,
)


@dataclass(frozen=True)
class SearchConfig(Checked):
    """Settings of cem and cma. An iteration is one generation of whole episodes."""

    population: int | None = field(default=None, metadata=AT_LEAST_4)
    """Population size. Default: as many members as fit in one iteration's step budget, but at least
    40 (CEM) or 4 + 3 ln n (CMA)."""
    episodes: int = field(default=1, metadata=AT_LEAST_1)
    """Episodes per member, from the same initial states for all. Fitness is the mean undiscounted
    return."""
    path_length: int | None = field(default=None, metadata=AT_LEAST_1)
    """Maximum time steps per episode. Default: the time limit of the environment."""
    noisy_actions: bool = False
    """Whether members sample their actions, and the search includes the log standard deviations.
    Without it, members take the most probable action."""
    initial_std: float | None = field(default=None, metadata=POSITIVE)
    """σ₀: a parameter of a unit with n inputs starts with standard deviation σ₀/√n. Default: 1 for
    cem, 0.3 for cma."""
    elite_fraction: float = field(default=0.1, metadata=BETWEEN_0_AND_1)
    """ρ of cem: fraction of a generation whose moments define the next one."""
    extra_variance: float = field(default=0.05, metadata=NOT_NEGATIVE)
    """ζ of cem: extra variance in the first generation, as a fraction of σ₀²."""
    noise_generations: int = field(default=50, metadata=NOT_NEGATIVE)
    """T of cem: generations until the extra variance reaches 0. With 0, it shrinks with the steps
    and reaches 0 at the end of the run."""
    full_covariance_params: int = field(default=100, metadata=NOT_NEGATIVE)
    """Maximum number of parameters for a full covariance matrix (cma). Above it, a diagonal one."""
