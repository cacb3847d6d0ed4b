"""Settings that change during training: δ and the critic's learning rate.

A schedule is a pure function of the progress, steps / total_steps at the start of an iteration. So
a resumed run continues exactly. A resumed run with another `total_steps` follows the schedule of
its new length from there on.
"""

import numpy as np

from trellis.config import TrainConfig
from trellis.optimization.step import StepInputs
from trellis.policies.policy import Policy


def linear(first: float, last: float, progress: float) -> float:
    """Return the value between `first` (progress 0) and `last` (progress 1).

    Args:
        first: Value at the start.
        last: Value at the end.
        progress: Finished part of the training; more than 1 counts as 1.
    """
    share = min(max(progress, 0.0), 1.0)
    return first + (last - first) * share


def critic_learning_rate(config: TrainConfig, steps: int) -> float | None:
    """Return the critic's learning rate after `steps` steps; None if it is constant."""
    settings = config.estimation
    if settings.final_critic_learning_rate is None:
        return None
    progress = steps / config.total_steps
    return linear(settings.critic_learning_rate, settings.final_critic_learning_rate, progress)


def step_inputs(config: TrainConfig, policy: Policy, steps: int) -> StepInputs:
    """Return δ after `steps` steps if it changes, and the lower bounds of θ if there are any.

    Raises:
        ValueError: The policy has no log std that could be bounded.
    """
    step, max_kl, lower = config.step, None, None
    if step.final_max_kl is not None:
        max_kl = linear(step.max_kl, step.final_max_kl, steps / config.total_steps)
        max_kl = np.float32(max_kl)
    free = policy.distribution.num_free
    if step.min_log_std is not None:
        if not free:
            raise ValueError(
                "min_log_std needs continuous actions whose log std does not depend on the state:"
                " leave it out"
            )
        lower = np.full(policy.num_params, -np.inf, np.float32)
        lower[-free:] = step.min_log_std
    return StepInputs(max_kl, lower)
