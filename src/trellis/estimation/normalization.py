"""Normalizes rewards, and measures what moving observation statistics do to the policy.

Rewards are divided by the running std of the discounted return.

Departs from the paper, which does not normalize rewards. The critic and the advantages then have
about the same scale in every task. The statistic is the return discounted along the past,

    R_t = r_t + γR_{t−1}

which needs no future rewards.

Observation statistics move after the step, outside of the KL constraint. `normalization_kl` is the
KL divergence between the new policy with the old statistics and with the new ones.
"""

import numpy as np

from trellis.estimation.returns import running_returns
from trellis.inputs import Inputs
from trellis.moments import Moments
from trellis.policies.normalizer import make_normalizer
from trellis.policies.policy import Policy
from trellis.sampling.samples import Samples

MOST_STATES = 512
"""Largest number of states that `normalization_kl` uses."""


def update_reward_scale(running: Moments, new: Moments | None) -> tuple[Moments, float]:
    """Return the updated running moments, and the number that rewards are divided by.

    Args:
        running: Moments of the discounted return before this iteration.
        new: Moments of the discounted return in this iteration; None if rewards are not normalized.
    """
    if new is None:
        return running, 1.0
    running = running.merge(new)
    return running, float(np.sqrt(running.variance + 1e-8))


def discounted_returns(
    samples: Samples, before: np.ndarray, gamma: float, *, new_episodes: bool
) -> tuple[Moments, np.ndarray]:
    """Return the moments of R in this iteration, and the last R of each environment.

    Args:
        samples: Samples of one iteration.
        before: R of each environment before the first step; 0 if an episode starts there.
        gamma: Discount factor.
        new_episodes: Whether the next iteration starts new episodes, so that R restarts at 0.
    """
    running = running_returns(samples.reward, samples.ended, before, gamma)
    after = np.where(samples.ended[-1] | new_episodes, 0.0, running[-1]).astype(np.float64)
    return Moments.of(running), after


def normalization_kl(
    policy: Policy,
    theta: np.ndarray,
    samples: Samples,
    new: Moments,
    new_theta: np.ndarray | None = None,
) -> Moments | None:
    """Return the mean KL between π_θ with the old and with the new observation statistics.

    Args:
        policy: The policy.
        theta: Its parameters θ.
        samples: Samples of one iteration, normalized with the old statistics.
        new: The new statistics.
        new_theta: Parameters that go with the new statistics. Default: the same.

    Returns:
        The mean over at most about `MOST_STATES` states of the samples, with the carries of the
        sampling policy if it has memory. None for pictures, of which the samples do not keep all
        frames.
    """
    if new.mean.ndim == 2 or isinstance(samples.observation, Inputs):
        return None
    times, envs = samples.reward.shape
    step = -(-times * envs // MOST_STATES)
    observation, raw = samples.observation[::step], samples.raw_observation[::step]
    carry = None if samples.carries is None else samples.carries.before[::step]
    old_params, _ = policy.distribution_params(theta, np.asarray(observation), carry)
    new_theta = theta if new_theta is None else new_theta
    new_params, _ = policy.distribution_params(new_theta, make_normalizer(new)(raw), carry)
    kl = np.asarray(policy.distribution.kl(old=old_params, new=new_params))
    return Moments.of_mean(float(kl.mean()), kl.size)
