"""What the compiled iteration gets and returns: its parts, its inputs and its outputs."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Float, Int

from trellis.arrays import Array
from trellis.config import EstimationConfig, StepConfig
from trellis.estimation.compiled import Fit, PathStatistics, Running
from trellis.estimation.critic import MLPCritic
from trellis.estimation.device_moments import DeviceMoments
from trellis.optimization.step import StepInfo, StepInputs
from trellis.sampling.first_invalid import FirstInvalid
from trellis.sampling.scan import Randomness, Scaling, Walker


@dataclass(frozen=True)
class Program:
    """What the compiled iteration of a run consists of; a static argument of it."""

    walker: Walker
    """Policy and environments."""
    critic: MLPCritic | None
    """Estimator of V(s); None without a critic."""
    estimation: EstimationConfig
    """Settings of advantages and critic."""
    step: StepConfig
    """Settings of the step."""
    features: int
    """Number of features of an observation; an action mask may follow them."""
    new_episodes: bool
    """Whether every iteration starts new episodes."""
    longest: int | None
    """Time limit of the environment, or None."""
    chunk_sizes: tuple[int, int]
    """Number of states per chunk of the step, and per chunk of the Fisher matrix."""
    copies: int = 1
    """Number of runs that are computed at once and share the memory for linearizations."""
    axes: tuple[str, ...] = ()
    """Names of the axes over which the environments are distributed."""


class Learned(NamedTuple):
    """What training changes, as the program gets it."""

    theta: Float[Array, " params"]
    """Parameters of the policy."""
    critic: dict[str, Array]
    """Parameters of the critic and of Adam; empty without a critic."""
    scaling: Scaling | None
    """Mean and factor that standardize observations; None if they are not normalized."""
    observations: DeviceMoments
    """Running statistics of observations."""
    returns: DeviceMoments
    """Running statistics of discounted returns."""


class Chance(NamedTuple):
    """All random numbers of an iteration, for the environments of one place."""

    paths: Randomness
    """Noise and seeds of the paths."""
    batches: Int[Array, "step sample"] | None
    """Samples of each gradient step of the critic."""
    fisher_rows: Int[Array, " row"]
    """States that F is computed on."""


class Schedule(NamedTuple):
    """Values that change with the progress of the run."""

    inputs: StepInputs
    """δ and bounds of the step."""
    learning_rate: Any
    """Learning rate of the critic; None if it is constant."""


class Outputs(NamedTuple):
    """Everything that an iteration returns; `place` marks what belongs to one place alone."""

    theta: Float[Array, " params"]
    """New parameters of the policy."""
    info: StepInfo
    """Description of the step."""
    critic: dict[str, Array]
    """State of the fitted critic, the mean over all places."""
    reward_scale: Float[Array, ""]
    """Number that rewards were divided by."""
    values: DeviceMoments
    """Moments of the advantages of all places."""
    place: "PlaceOutputs"
    """Results of one place."""


class PlaceOutputs(NamedTuple):
    """Results of the environments of one place."""

    rows: Any
    """Environments after the last step."""
    last_observation: Float[Array, "env features"]
    """Encoded observations after the last step, or after its reset."""
    age: Int[Array, " env"]
    """Number of steps since the episode began."""
    running: Running
    """Sums along the episodes."""
    statistics: PathStatistics
    """Statistics of the paths."""
    observations: DeviceMoments
    """Moments of the observations."""
    fit: Fit | None
    """The critic fit; None without a critic."""
    advantage: DeviceMoments
    """Moments of the advantages."""
    entropy: Float[Array, ""]
    """Mean entropy of the new policy in the last states."""
    normalization_kl: Float[Array, ""]
    """Mean KL that moving observation statistics add."""
    invalid: FirstInvalid
    """Invalid values of the environments."""
