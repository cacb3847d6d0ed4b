"""The policy for the spaces of an environment: a network and a distribution that fit them."""

from trellis.config import PolicyConfig
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.spaces import PictureFeatures, Space, action_kind, observation_encoder


def build_policy(config: PolicyConfig, observation_space: Space, action_space: Space) -> Policy:
    """Return the policy that the settings describe, for these spaces."""
    features, _ = observation_encoder(observation_space)
    distribution = _distribution(action_space)
    hidden, outputs, scale = config.hidden, distribution.num_outputs, config.output_scale
    if isinstance(features, PictureFeatures):
        if not config.hidden_biases:
            raise ValueError("a policy for pictures always has hidden biases: leave them on")
        network = ConvNet(features.shape, config.channels, hidden, outputs, scale)
    else:
        network = MLP(features, hidden, outputs, config.hidden_biases, scale)
    return Policy(network, distribution, config.initial_log_std)


def require_fit(policy: Policy, observation_space: Space, action_space: Space, name: str) -> None:
    """Raise a ValueError if a policy of the user's own does not fit the spaces of `name`."""
    features, _ = observation_encoder(observation_space)
    network, distribution = policy.network, policy.distribution
    if isinstance(distribution, DiagGaussian | Categoricals):
        wanted = _distribution(action_space)
        _require_equal("actions", "distribution", distribution, wanted, name)
    pictures = isinstance(features, PictureFeatures)
    if isinstance(network, ConvNet if pictures else MLP):
        inputs = features.shape if pictures else features
        _require_equal("observations", "network's inputs", network.inputs, inputs, name)


def _require_equal(what: str, of: str, has: object, wanted: object, name: str) -> None:
    if has != wanted:
        raise ValueError(
            f"the policy does not fit the {what} of {name}: its {of} should be {wanted}, got {has}"
        )


def _distribution(action_space: Space) -> DiagGaussian | Categoricals:
    kind = action_kind(action_space)
    return DiagGaussian(kind) if isinstance(kind, int) else Categoricals(kind)
