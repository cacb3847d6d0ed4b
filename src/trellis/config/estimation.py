"""Settings of advantages, Q-values, critic and normalization (Sec. 5)."""

from dataclasses import dataclass, field
from typing import Literal

from trellis.config.checks import (
    AT_LEAST_1,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SIZES,
    UNIT_INTERVAL,
    Checked,
)


@dataclass(frozen=True)
class EstimationConfig(Checked):
    """Settings of advantages, Q-values and the critic (Sec. 5; the critic came after the paper)."""

    criterion: Literal["discounted", "average"] = "discounted"
    """What the advantages are of: the discounted return, or the average reward (ATRPO: no discount,
    differential values). average needs a critic and single path; γ then only scales rewards."""
    reset_cost: float = field(default=0.0, metadata=NOT_NEGATIVE)
    """Cost of a terminal state with criterion average, after which the next episode counts as a
    continuation. Zhang and Ross (2021) use 100 for MuJoCo."""
    gamma: float = field(default=0.99, metadata=FRACTION)
    """Discount factor γ."""
    gae_lambda: float = field(default=0.95, metadata=UNIT_INTERVAL)
    """λ of generalized advantage estimation (GAE). Needs a critic."""
    critic: Literal["none", "linear", "mlp"] = "mlp"
    """Model of V(s): none (the paper), linear (least squares on features) or mlp (a network)."""
    baseline: Literal["none", "constant", "time"] = "constant"
    """Baseline of Q̂: none, constant (the mean of the batch) or time (the mean of the other
    environments at the same time step). Only single path without a critic uses it."""
    horizon: int | None = field(default=None, metadata=AT_LEAST_1)
    """Number of rewards in Q̂ of single path without a critic. Default: all of the path."""
    critic_memory: bool = True
    """Whether the critic sees what a policy with memory carries, beside the observation. Only for
    observations that are vectors."""
    critic_hidden: tuple[int, ...] = field(default=(64, 64), metadata=POSITIVE_SIZES)
    """Sizes of the critic's hidden tanh layers."""
    critic_learning_rate: float = field(default=1e-3, metadata=POSITIVE)
    """Adam learning rate of the critic."""
    final_critic_learning_rate: float | None = field(default=None, metadata=NOT_NEGATIVE)
    """Learning rate at the end of training; it changes linearly with the steps. Default: it is
    constant."""
    critic_epochs: int = field(default=10, metadata=AT_LEAST_1)
    """Passes over the batch per critic fit."""
    critic_minibatch: int = field(default=128, metadata=AT_LEAST_1)
    """Samples per gradient step of the critic."""
    advantages: Literal["center", "standardize", "raw"] = "standardize"
    """Scaling of the advantages: center (subtract the mean; the paper's presets), standardize (also
    divide by the standard deviation) or raw."""
    discount_states: bool = False
    """Whether states are weighted by γᵗ (the paper's ρ_π) instead of uniformly."""
    normalize_observations: bool = True
    """Whether observations are standardized with running moments and clipped to ±10."""
    compensate_normalization: bool = False
    """Whether the first layers of policy and critic are rescaled when observation statistics move,
    so that neither changes. Needs dense layers with biases."""
    normalize_rewards: bool = True
    """Whether rewards are divided by the running standard deviation of the discounted return."""

    def __post_init__(self):
        super().__post_init__()
        if self.criterion == "average" and self.critic == "none":
            raise ValueError("critic must be linear or mlp for criterion average, got 'none'")
        if self.criterion == "average" and self.discount_states:
            raise ValueError("discount_states must be False for criterion average, got True")
        if self.criterion == "discounted" and self.reset_cost:
            raise ValueError(
                f"reset_cost must be 0 for criterion discounted, got {self.reset_cost}"
            )
        if self.horizon is not None and self.critic != "none":
            raise ValueError(
                f"horizon has no effect with critic {self.critic}: leave it out, or set critic to"
                " none"
            )
        if self.final_critic_learning_rate is not None and self.critic != "mlp":
            raise ValueError(
                "final_critic_learning_rate has no effect without critic mlp: leave it out"
            )
