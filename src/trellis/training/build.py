"""Builds the parts of a training run from its configuration.

`build_model` creates policy and critic for the spaces of an environment. `build_sampler` creates
the sampler. A configuration that does not fit its environment raises an error here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trellis import envs
from trellis.config import TrainConfig
from trellis.envs.batch import BatchEnv
from trellis.estimation.compensation import require_compensable
from trellis.estimation.critic import Critic, LinearCritic, MLPCritic
from trellis.estimation.surrogate import Estimator
from trellis.policies.build import build_policy, require_fit, respect_mask
from trellis.policies.policy import Policy
from trellis.sampling.compiled import CompiledPath
from trellis.sampling.compiled_vine import CompiledVine
from trellis.sampling.environment import Compilable
from trellis.sampling.proposals import Proposal
from trellis.sampling.single_path import SinglePath
from trellis.sampling.vine import Vine
from trellis.spaces import (
    Encoder,
    PictureFeatures,
    SeveralFeatures,
    Spaces,
    moments_shape,
    observation_encoder,
)
from trellis.strict_json import shown

MakeEnv = Callable[[int], BatchEnv]
"""Function from a number of environments to a batch of that size."""


@dataclass(frozen=True)
class Model:
    """Policy and critic for the spaces of one environment."""

    policy: Policy
    """Network and distribution of π_θ."""
    critic: Critic | None
    """Estimator of V(s); None without a critic."""
    encode: Encoder
    """Function from a batch of observations to features."""
    moments_shape: tuple[int, ...]
    """Shape of the observation statistics."""
    spaces: Spaces
    """Observation space and action space."""


def env_maker(config: TrainConfig) -> MakeEnv:
    """Return a function that creates batches of the configured environment."""

    def make(num_envs: int) -> BatchEnv:
        return make_env(config, num_envs, nthread=config.threads)

    return make


def make_env(config: TrainConfig, num_envs: int, **options: Any) -> BatchEnv:
    """Return a batch of the environment that the configuration names; `options` add to its own.

    Raises:
        ValueError: The environment refuses its options; the message names them.
    """
    options = {**config.env_options, **options}
    try:
        return envs.make(config.env, num_envs, **options)
    except (TypeError, AttributeError, AssertionError, ArithmeticError, LookupError) as error:
        raise ValueError(
            f"{config.env} cannot be made with the options {shown(dict(config.env_options))}:"
            f" {type(error).__name__}: {error}"
        ) from error


def build_model(config: TrainConfig, env: BatchEnv, policy: Policy | None = None) -> Model:
    """Return policy and critic for an environment.

    Args:
        config: Settings of the run.
        env: Batch of the environment, of any size. It is closed if an error is raised.
        policy: Custom policy; by default the one that the settings describe.

    Raises:
        ValueError: The configuration or the policy does not fit the environment.
    """
    try:
        if config.sampling.is_vine:
            _require_restorable(env)
        spaces = env.observation_space, env.action_space
        if policy is None:
            policy = build_policy(config.policy, *spaces)
        else:
            require_fit(policy, *spaces, env.env_id, config.policy.pictures)
            policy = respect_mask(policy, spaces[0])
        features, encode = observation_encoder(env.observation_space, config.policy.pictures)
        critic = build_critic(config, features, policy.carry_size)
        if config.estimation.compensate_normalization:
            require_compensable(policy, critic)
        return Model(policy, critic, encode, moments_shape(features), spaces)
    except BaseException:
        env.close()
        raise


def _require_restorable(env: BatchEnv) -> None:
    try:
        env.require_restorable()
    except envs.NotRestorableError as error:
        raise envs.NotRestorableError(
            f"vine restores states that it has visited, but {error} Or use --sampler single-path."
        ) from None


def build_critic(config: TrainConfig, features: int, carry_size: int = 0) -> Critic | None:
    """Return what estimates V, if anything needs it: vine does for a bootstrap alone.

    Args:
        config: Settings of the run.
        features: Features of an observation.
        carry_size: Number of values that a policy with memory carries; the critic may see them.
    """
    settings = config.estimation
    if config.sampling.is_vine and not config.sampling.vine.bootstrap:
        return None
    pictures = isinstance(features, PictureFeatures | SeveralFeatures)
    if settings.critic_memory and carry_size and not pictures:
        features = features + carry_size
    match settings.critic:
        case "none":
            return None
        case "linear":
            if pictures:
                raise ValueError("critic linear does not support pictures: set critic to mlp")
            return LinearCritic(int(features))
        case "mlp":
            inputs = features if isinstance(features, SeveralFeatures) else int(features)
            inputs = features.shape if isinstance(features, PictureFeatures) else inputs
            return MLPCritic(inputs, settings, config.policy.channels)


def why_inexact(env: BatchEnv, *, starts_new_episodes: bool) -> str:
    """Return why a run cannot be resumed bit for bit; an empty text if it can.

    Args:
        env: Batch of the environment, of any size.
        starts_new_episodes: Whether every iteration starts with new episodes.
    """
    if not env.repeatable:
        return f"{env.env_id} does not play the same episode twice from one seed"
    if starts_new_episodes or env.restorability is envs.Restorability.SERIALIZABLE:
        return ""
    return f"{env.env_id} cannot be saved to a checkpoint"


def build_sampler(
    config: TrainConfig, env: BatchEnv, make_env: MakeEnv, model: Model, *, shard: int = 0
) -> tuple[SinglePath | CompiledPath | Vine, Estimator]:
    """Return the sampler, and the estimator of the surrogate that fits it.

    Args:
        config: Settings of the run, or of one shard of it.
        env: Batch of environments for the paths.
        make_env: Function that creates batches; vine uses it for its rollouts.
        model: Policy and encoder of observations.
        shard: Index of the shard, which selects the random streams.
    """
    policy, encode, sampling = model.policy, model.encode, config.sampling
    streams, gamma = {"seed": config.seed, "shard": shard}, config.estimation.gamma
    # Samplers of environments in JAX are compiled, but for pictures and for policies with memory.
    vectors = len(model.moments_shape) == 1 and not isinstance(encode, SeveralFeatures)
    compilable = vectors and not policy.carry_size
    if not sampling.is_vine:
        if compilable and isinstance(env, Compilable):
            sampler = CompiledPath(env, policy, encode, sampling, **streams)
        else:
            sampler = SinglePath(env, policy, encode, sampling, **streams)
        return sampler, Estimator.IMPORTANCE
    kind = CompiledVine if compilable and isinstance(env, Compilable) else Vine
    sampler = kind(env, make_env, policy, encode, sampling, gamma=gamma, **streams)
    every = sampler.proposal is Proposal.EVERY
    return sampler, Estimator.ENUMERATED if every else Estimator.SELF_NORMALIZED
