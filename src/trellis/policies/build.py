"""Builds the policy for the spaces of an environment: a network and a distribution that fit them.

Vectors get dense layers and pictures get convolutions; a recurrent cell may follow them. Continuous
actions get a Gaussian, discrete actions get categorical factors (App. D).
"""

import math

from trellis.config import PolicyConfig
from trellis.pictures import PictureRule
from trellis.policies.cells import CELLS
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.policies.recurrent import NoEncoder, RecurrentNet
from trellis.spaces import PictureFeatures, Space, action_kind, observation_encoder


def build_policy(config: PolicyConfig, observation_space: Space, action_space: Space) -> Policy:
    """Return the policy that `config` describes, for the spaces of an environment.

    Args:
        config: Sizes of the layers and how the weights are initialized.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.

    Returns:
        The policy's description. `Policy.init` creates its parameters.

    Raises:
        UnsupportedSpaceError: No policy supports these spaces.

    Example:
        >>> from gymnasium import spaces
        >>> from trellis.config import PolicyConfig
        >>> observations, actions = spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2)
        >>> build_policy(PolicyConfig(hidden=(8,)), observations, actions).num_params
        58
    """
    features, _ = observation_encoder(observation_space, config.pictures)
    distribution = _distribution(action_space)
    if config.memory == "none":
        network = _layers(config, features, config.hidden, outputs=distribution.num_outputs)
    else:
        network = _with_memory(config, features, distribution.num_outputs)
    return Policy(network, distribution, config.initial_log_std)


def _with_memory(config: PolicyConfig, features: int, outputs: int) -> RecurrentNet:
    """Return a network whose hidden layers come before a recurrent cell."""
    cell = CELLS[config.memory](config.memory_units)
    *hidden, last = config.hidden or (cell.units,)
    encoder = NoEncoder(features)
    if config.hidden or isinstance(features, PictureFeatures):
        encoder = _layers(config, features, tuple(hidden), outputs=last, scale=math.sqrt(2.0))
    return RecurrentNet(encoder, cell, outputs, config.output_scale)


def _layers(
    config: PolicyConfig,
    features: int,
    hidden: tuple[int, ...],
    *,
    outputs: int,
    scale: float | None = None,
) -> MLP | ConvNet:
    """Return dense layers for vectors and convolutions for pictures."""
    scale = config.output_scale if scale is None else scale
    if isinstance(features, PictureFeatures):
        if not config.hidden_biases:
            raise ValueError(
                "hidden_biases must be True for picture observations, got False: the convolutions"
                " always have biases"
            )
        return ConvNet(features.shape, config.channels, hidden, outputs, scale)
    return MLP(features, hidden, outputs, config.hidden_biases, scale)


def require_fit(
    policy: Policy,
    observation_space: Space,
    action_space: Space,
    name: str,
    pictures: PictureRule = "convolve",
) -> None:
    """Raise a ValueError if a policy does not fit the spaces of an environment.

    Only networks and distributions of Trellis are checked; a user's own classes are not.

    Args:
        policy: The policy, usually one that the user passed.
        observation_space: Observation space of the environment.
        action_space: Action space of the environment.
        name: Id of the environment, for the message.
        pictures: Which boxes of bytes are pictures (`policy.pictures` of the settings).
    """
    features, _ = observation_encoder(observation_space, pictures)
    network, distribution = policy.network, policy.distribution
    if isinstance(network, RecurrentNet):
        network = network.encoder
    if isinstance(distribution, DiagGaussian | Categoricals):
        wanted = _distribution(action_space)
        _require_equal("actions", "distribution", distribution, wanted, name)
    inputs = features.shape if isinstance(features, PictureFeatures) else features
    if isinstance(network, MLP | NoEncoder if isinstance(inputs, int) else ConvNet):
        _require_equal("observations", "network's inputs", network.inputs, inputs, name)


def _require_equal(what: str, of: str, has: object, wanted: object, name: str) -> None:
    if has != wanted:
        raise ValueError(
            f"the policy does not fit the {what} of {name}: its {of} must be {wanted}, got {has}"
        )


def _distribution(action_space: Space) -> DiagGaussian | Categoricals:
    kind = action_kind(action_space)
    return DiagGaussian(kind) if isinstance(kind, int) else Categoricals(kind)
