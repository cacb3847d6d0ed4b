"""Reward normalization: rewards are divided by the running std of the discounted return.

The critic and the advantages then have about the same scale in every task. The statistic is the
return discounted along the past, R_t = r_t + γR_{t−1}, which needs no future rewards.
"""

import numpy as np

from trellis.estimation.returns import running_returns
from trellis.moments import Moments
from trellis.sampling.samples import Samples


def update_reward_scale(running: Moments, new: Moments | None) -> tuple[Moments, float]:
    """Return the running moments with an iteration's added, and what rewards are divided by.

    Args:
        running: moments of the discounted return before this iteration.
        new: those of this iteration; None where rewards are not normalized.
    """
    if new is None:
        return running, 1.0
    running = running.merge(new)
    return running, float(np.sqrt(running.variance + 1e-8))


def discounted_returns(
    samples: Samples, before: np.ndarray, gamma: float, *, new_episodes: bool
) -> tuple[Moments, np.ndarray]:
    """Return the moments of R in this iteration, and R of each environment for the next one.

    Args:
        samples: an iteration's samples.
        before: R of each environment before the first step, 0 where an episode starts there.
        gamma: the discount.
        new_episodes: whether the next iteration starts new episodes.
    """
    running = running_returns(samples.reward, samples.ended, before, gamma)
    after = np.where(samples.ended[-1] | new_episodes, 0.0, running[-1]).astype(np.float64)
    return Moments.of(running), after
