"""Builds the metrics of an iteration: one number or word per name."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis.estimation.advantages import Estimated
from trellis.optimization.step import Status, StepInfo
from trellis.training.shard import Collected, Finished
from trellis.training.state import TrainState

PARTS = ("seconds_sampling", "seconds_estimation", "seconds_update")
"""Metrics of the times that the parts of an iteration take."""


def iteration_metrics(
    state: TrainState,
    collected: Collected,
    estimated: Estimated,
    info: StepInfo,
    finished: Finished,
    clock: Sequence[float],
    surrogate_scale: float,
) -> dict[str, Any]:
    """Return the metrics of the iteration that led to `state`.

    Args:
        state: State after the iteration.
        collected: Result of `Team.collect`.
        estimated: Result of `Team.estimate`.
        info: Result of `Team.step`.
        finished: Result of `Team.finish`.
        clock: Times before sampling, after it, after estimation and after the step; only the
            first and the last if the iteration was one program.
        surrogate_scale: Reward that one unit of the surrogate stands for.
    """
    times: dict[str, float] = {"seconds_iteration": clock[-1] - clock[0]}
    if len(clock) > 2:
        times = dict(zip(PARTS, np.diff(clock).tolist(), strict=True))
    fit, moved = estimated.critic_fit, finished.normalization_kl
    metrics = {
        "iteration": state.iteration,
        "steps": state.steps,
        **_episode_metrics(collected),
        "kl": float(info.mean_kl),
        "max_kl": float(info.max_kl),
        "normalization_kl": None if moved is None else float(moved.mean),
        "surrogate_gain": float(info.surrogate_after - info.surrogate_before),
        "surrogate_scale": surrogate_scale,
        "status": Status(int(info.status)).name.lower(),
        "step_fraction": float(info.step_fraction),
        "backtracks": int(info.backtracks),
        "cg_residual": float(info.cg_residual),
        "gradient_norm": float(info.gradient_norm),
        "entropy": float(finished.entropy.mean),
        "critic_loss": None if fit is None else float(fit.loss.mean),
        "explained_variance": None if fit is None else fit.explained_variance,
        **times,
        "steps_per_second": collected.steps / (clock[-1] - clock[0]),
    }
    return {key: value for key, value in metrics.items() if value is not None}


def _episode_metrics(collected: Collected) -> dict[str, Any]:
    returns, lengths = collected.episode_return, collected.episode_length
    metrics: dict[str, Any] = {
        "reward_per_step": float(collected.reward.mean),
        "episodes": int(returns.count),
    }
    if returns.count:
        metrics |= {
            "episode_return_mean": float(returns.mean),
            "episode_return_std": float(np.sqrt(returns.squares / returns.count)),
            "episode_length_mean": float(lengths.mean),
        }
    rollouts = collected.rollout_length
    if rollouts is not None:
        metrics |= {"rollouts": int(rollouts.count), "rollout_length_mean": float(rollouts.mean)}
    return metrics
