"""Settings of the policy network (App. D)."""

from dataclasses import dataclass, field
from typing import Literal

from trellis.config.checks import AT_LEAST_1, POSITIVE_SIZES, Checked


@dataclass(frozen=True)
class PolicyConfig(Checked):
    """Settings of the policy network π_θ."""

    hidden: tuple[int, ...] = field(default=(64, 64), metadata=POSITIVE_SIZES)
    """Sizes of the hidden tanh layers. Empty for a linear policy."""
    channels: tuple[int, ...] = field(default=(16, 16), metadata=POSITIVE_SIZES)
    """Channels of the convolutions (4×4, stride 2) that policy and critic use for images."""
    pictures: Literal["convolve", "frames-first", "flatten"] = "convolve"
    """Which observations of bytes get convolutions: all pictures (convolve), those of shape
    (frames, height, width) without reduction (frames-first), or none (flatten)."""
    hidden_biases: bool = True
    """Whether the hidden layers have biases. The paper's swimmer policy has none."""
    initial_log_std: float = 0.0
    """Initial log standard deviation of continuous actions."""
    state_dependent_std: bool = False
    """Whether the network computes the log standard deviations, so that they depend on the state.
    By default they are parameters of their own, as in the paper."""
    squashed_actions: bool = False
    """Whether continuous actions are tanh of Gaussian ones, scaled to their bounds. By default they
    are Gaussian, and clipped."""
    output_scale: float = 0.01
    """Scale of the output layer's initial weights."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """Memory after the hidden layers: none (feed-forward), gru or lstm. For tasks where one
    observation does not show the whole state."""
    memory_units: int = field(default=64, metadata=AT_LEAST_1)
    """Units of the memory."""
    memory_span: float = field(default=32.0, metadata=AT_LEAST_1)
    """Number of steps over which the slowest unit forgets before training. Small for what changes
    quickly, such as velocities; large for signs that must be remembered."""
