"""Defines the results of estimation: values with their statistics, and the critic fit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trellis.estimation.baseline import ValueMoments
from trellis.estimation.critic import Critic, CriticState, average_critics
from trellis.moments import Moments


@dataclass(frozen=True)
class CriticFit:
    """Result of the critic fit on one iteration's samples."""

    critic: CriticState
    """State of the fitted critic."""
    loss: Moments
    """Mean squared error during the fit; its count is the number of samples."""
    advantage: Moments
    """Moments of the advantages, which the critic before the fit did not explain."""
    target: Moments
    """Moments of the returns that the critic was fitted to."""

    def merge(self, other: "CriticFit") -> "CriticFit":
        """Return the combined fit of two shards; critics are averaged, weighted by samples."""
        loss = self.loss.merge(other.loss)
        return CriticFit(
            average_critics(self.critic, other.critic, float(other.loss.count / loss.count)),
            loss,
            self.advantage.merge(other.advantage),
            self.target.merge(other.target),
        )

    @property
    def explained_variance(self) -> float | None:
        """Explained variance, 1 − Var(advantage)/Var(return); None if all returns are equal."""
        total = self.target.variance
        return float(1 - self.advantage.variance / total) if total > 0 else None


class Estimated(NamedTuple):
    """Statistics of the estimated values of one iteration."""

    values: ValueMoments
    """Moments of the advantages; with vine, of the differences among the actions of a state; with
    the time baseline, of Q̂ at every time."""
    critic_fit: CriticFit | None
    """The critic fit; None without a critic."""


class Estimate(NamedTuple):
    """Estimated values of one iteration, and the critic fit that is still to be run."""

    values: np.ndarray
    """Advantages (time, env) of single paths, before a baseline is subtracted, or Q-values (state,
    action) of vine's rollouts."""
    moments: ValueMoments
    """Statistics of the values."""
    fit: Callable[[], CriticFit] | None
    """Function that fits the critic; None without a critic."""


def fit_critic(critic: Critic, data: tuple[Any, ...], advantage: np.ndarray) -> CriticFit:
    """Fit the critic to the targets in `data`, the arguments of its `fit`."""
    fitted, loss = critic.fit(*data)
    target = data[3]
    loss = Moments.of_mean(loss, target.size)
    return CriticFit(fitted, loss, Moments.of(advantage), Moments.of(target))
