"""Builds the policy for the spaces of an environment: a network and a distribution that fit them.

Vectors get dense layers and pictures get convolutions; a recurrent cell may follow them. Continuous
actions get a Gaussian, discrete actions get categorical factors (App. D). If observations have an
action mask, the network is wrapped so that illegal actions have probability 0.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from trellis.actions import action_kind
from trellis.config import PolicyConfig
from trellis.masks import mask_size, parts_of, require_mask_fits
from trellis.pictures import PictureRule
from trellis.policies.cells import CELLS
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.gaussians import SquashedGaussian, StateGaussian
from trellis.policies.masked import MaskedNetwork
from trellis.policies.networks import MLP, Network
from trellis.policies.policy import Policy
from trellis.policies.product import Part, Product
from trellis.policies.recurrent import NoEncoder, RecurrentNet
from trellis.policies.several_build import several_network
from trellis.spaces import (
    PictureFeatures,
    SeveralFeatures,
    Space,
    observation_encoder,
    observation_parts,
)


def build_policy(
    config: PolicyConfig,
    observation_space: Space,
    action_space: Space,
    *,
    encoders: Mapping[str, Network] | None = None,
) -> Policy:
    """Return the policy that `config` describes, for the spaces of an environment.

    Args:
        config: Sizes of the layers and how the weights are initialized.
        observation_space: Observation space of one environment.
        action_space: Action space of one environment.
        encoders: Networks of your own for parts of a Dict or Tuple observation, by key; keys of
            nested parts are joined by dots. An encoder gets the part as bytes (picture) or as
            features (anything else).

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
    require_mask_fits(observation_space, action_space)
    features, _ = observation_encoder(observation_space, config.pictures)
    distribution = build_distribution(config, action_space)
    if encoders is not None and not isinstance(features, SeveralFeatures):
        if not isinstance(observation_space, spaces.Dict | spaces.Tuple):
            raise ValueError("encoders needs a Dict or Tuple observation space, which has keys")
        features = observation_parts(observation_space)
        if features.pictures:
            raise ValueError(f"pictures must be convolve for encoders, got {config.pictures!r}")
    if config.memory == "none":
        outputs = distribution.num_outputs
        network = _layers(config, features, config.hidden, encoders, outputs=outputs)
    else:
        network = _with_memory(config, features, distribution.num_outputs, encoders)
    policy = Policy(network, distribution, config.initial_log_std)
    return respect_mask(policy, observation_space)


def _with_memory(
    config: PolicyConfig, features: int, outputs: int, encoders: Mapping[str, Network] | None
) -> RecurrentNet:
    """Return a network whose hidden layers come before a recurrent cell."""
    cell = CELLS[config.memory](config.memory_units, config.memory_span)
    *hidden, last = config.hidden or (cell.units,)
    encoder = NoEncoder(int(features))
    if config.hidden or isinstance(features, PictureFeatures | SeveralFeatures):
        scale = math.sqrt(2.0)
        encoder = _layers(config, features, tuple(hidden), encoders, outputs=last, scale=scale)
    return RecurrentNet(encoder, cell, outputs, config.output_scale)


def _layers(
    config: PolicyConfig,
    features: int,
    hidden: tuple[int, ...],
    encoders: Mapping[str, Network] | None,
    *,
    outputs: int,
    scale: float | None = None,
) -> Network:
    """Return dense layers for vectors, convolutions for pictures, and both for several parts."""
    scale = config.output_scale if scale is None else scale
    if isinstance(features, PictureFeatures | SeveralFeatures) and not config.hidden_biases:
        raise ValueError(
            "hidden_biases must be True for picture observations, got False: the convolutions"
            " always have biases"
        )
    if isinstance(features, SeveralFeatures):
        return several_network(features, config.channels, hidden, outputs, scale, encoders)
    if isinstance(features, PictureFeatures):
        return ConvNet(features.shape, config.channels, hidden, outputs, scale)
    return MLP(int(features), hidden, outputs, config.hidden_biases, scale)


def respect_mask(policy: Policy, observation_space: Space) -> Policy:
    """Return the policy for observations of a space: with a mask, its network respects the mask.

    Args:
        policy: The policy; its network computes outputs from features without the mask.
        observation_space: Observation space of one environment.
    """
    if not mask_size(observation_space) or isinstance(policy.network, MaskedNetwork):
        return policy
    distribution, outputs = policy.distribution, policy.network.num_outputs
    logits = distribution.logits if isinstance(distribution, Product) else ((0, outputs),)
    return dataclasses.replace(policy, network=MaskedNetwork(policy.network, logits))


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
    if isinstance(network, MaskedNetwork):
        network = network.network
    if isinstance(network, RecurrentNet):
        network = network.encoder
    require_mask_fits(observation_space, action_space)
    if type(distribution) in (DiagGaussian, Categoricals):
        wanted = build_distribution(PolicyConfig(), action_space)
        _require_equal("actions", "distribution", distribution, wanted, name)
    if isinstance(features, SeveralFeatures):
        if isinstance(network, MLP | ConvNet | NoEncoder):
            raise ValueError(
                f"the policy does not fit the observations of {name}: they have parts that are"
                " pictures, so its network must be a SeveralNetwork, as build_policy makes it, got"
                f" {type(network).__name__}"
            )
        return
    inputs = features.shape if isinstance(features, PictureFeatures) else int(features)
    if isinstance(network, MLP | NoEncoder if isinstance(inputs, int) else ConvNet):
        _require_equal("observations", "network's inputs", network.inputs, inputs, name)


def _require_equal(what: str, of: str, has: object, wanted: object, name: str) -> None:
    if has != wanted:
        raise ValueError(
            f"the policy does not fit the {what} of {name}: its {of} must be {wanted}, got {has}"
        )


def build_distribution(config: PolicyConfig, action_space: Space) -> Part | Product:
    """Return the distribution of actions of a space.

    Args:
        config: Which kind of Gaussian continuous actions get.
        action_space: Action space of one environment.
    """
    kind = action_kind(action_space)
    if config.squashed_actions:
        _require_bounds(action_space)
    if isinstance(kind, list):
        return Product(tuple(_part(config, part) for part in kind))
    return _part(config, kind)


def _part(config: PolicyConfig, kind: Any) -> Part:
    if not isinstance(kind, int):
        return Categoricals(kind)
    gaussian = DiagGaussian(kind)
    if config.state_dependent_std:
        gaussian = StateGaussian(kind, config.initial_log_std)
    return SquashedGaussian(gaussian) if config.squashed_actions else gaussian


def _require_bounds(space: Space) -> None:
    """Raise a ValueError if continuous actions have no bounds that they could be squashed to."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for _, part in parts_of(space):
            _require_bounds(part)
    elif isinstance(space, spaces.Box) and not space.is_bounded():
        raise ValueError(
            f"squashed_actions must be False for the action space {space}: squashed actions fill"
            " the range between two finite bounds"
        )
