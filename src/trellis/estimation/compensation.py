"""Keeps policy and critic the same functions when observation statistics move.

The statistics move after the step, so they change the policy outside of the KL constraint. A first
layer x ↦ xW + b can absorb that. With x = (o − m)·f for old and new statistics,

    x_old = x_new·(f_old/f_new) + (m_new − m_old)·f_old
    W_new = diag(f_old/f_new) W        b_new = b + ((m_new − m_old)·f_old) W

give the same outputs for every observation o that neither statistics clip, up to rounding.

Two cases are left alone. Before the first iteration there are no statistics: the first networks are
meant for standardized inputs. And an input whose scale grows by more than the limit of the clip was
clipped everywhere before, such as a sensor that was constant so far.
"""

import math

import numpy as np

from trellis.estimation.critic import Critic, CriticState, MLPCritic
from trellis.moments import Moments
from trellis.policies.networks import MLP, Network
from trellis.policies.normalizer import OBSERVATION_LIMIT, Standardizer
from trellis.policies.policy import Policy


def require_compensable(policy: Policy, critic: Critic | None) -> None:
    """Raise a ValueError if a first layer cannot absorb a change of the statistics."""
    networks: dict[str, Network] = {"policy": policy.network}
    if isinstance(critic, MLPCritic):
        networks["critic"] = critic.network
    for name, network in networks.items():
        if not (isinstance(network, MLP) and (network.hidden_biases or not network.hidden)):
            raise ValueError(
                f"estimation.compensate_normalization needs dense layers with biases, but the"
                f" {name} begins with another layer: leave it out"
            )


def compensated(network: Network, vector: np.ndarray, old: Moments, new: Moments) -> np.ndarray:
    """Return parameters with which a network gives the same outputs under new statistics.

    Args:
        network: A network that `require_compensable` accepts.
        vector: Its parameters, with those of the first layer in front.
        old: Observation statistics for which the parameters are.
        new: Observation statistics for which they shall be.
    """
    if not old.count:
        return vector
    before, after = Standardizer(old), Standardizer(new)
    ratio = before.factor.astype(np.float64) / after.factor
    shift = (after.mean.astype(np.float64) - before.mean) * before.factor
    was_clipped = ratio > OBSERVATION_LIMIT
    ratio, shift = np.where(was_clipped, 1.0, ratio), np.where(was_clipped, 0.0, shift)
    (inputs, units), size = network.shapes[0], math.prod(network.shapes[0])
    matrix = vector[:size].reshape(inputs, units).astype(np.float64)
    bias = vector[size : size + units] + shift @ matrix
    first = np.concatenate([(ratio[:, None] * matrix).ravel(), bias])
    return np.concatenate([first.astype(vector.dtype), vector[size + units :]])


def compensated_critic(
    critic: Critic | None, state: CriticState, old: Moments, new: Moments
) -> CriticState:
    """Return the state of a critic that gives the same values under new statistics.

    The moments of Adam stay: they are averages over steps in slightly different coordinates.
    """
    if not isinstance(critic, MLPCritic):
        return state
    return {**state, "weights": compensated(critic.network, state["weights"], old, new)}
