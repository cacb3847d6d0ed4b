"""The parts of a training run, made from its configuration: environments, policy, critic, sampler.

What can be refused is refused here, before anything runs.
"""

from collections.abc import Callable

from trellis import envs
from trellis.config import TrainConfig
from trellis.envs.spaces import Encoder, PictureFeatures, action_kind
from trellis.estimation.critic import Critic, LinearCritic, MLPCritic
from trellis.estimation.surrogate import Estimator
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.sampling.proposals import Proposal
from trellis.sampling.single_path import SinglePath
from trellis.sampling.vine import Vine

MakeEnv = Callable[[int], envs.BatchEnv]


def env_from_catalog(config: TrainConfig) -> MakeEnv:
    """Batches of the environment that the configuration names, of any size."""

    def make(num_envs: int) -> envs.BatchEnv:
        return envs.make(config.env, num_envs, nthread=config.threads, **config.env_options)

    return make


def require_restorable(env: envs.BatchEnv) -> None:
    """Refuses vine where states cannot be put back, with the reason and the alternatives."""
    try:
        env.require_restorable()
    except envs.NotRestorableError as error:
        env.close()
        raise envs.NotRestorableError(
            f"vine starts rollouts from states that it has seen, but {error}"
            " Or use --sampler single-path."
        ) from None


def fit_policy(
    policy: Policy | None, config: TrainConfig, features: int, env: envs.BatchEnv
) -> Policy:
    """The policy if there is one already, and it is of this environment's size and kind; else the
    one that the configuration describes."""
    if policy is None:
        return build_policy(config, features, env)
    if isinstance(policy.distribution, DiagGaussian | Categoricals):
        _require_equal("actions", "distribution", policy.distribution, _distribution(env), env)
    if isinstance(policy.network, MLP) and not isinstance(features, PictureFeatures):
        _require_equal("observations", "network's inputs", policy.network.inputs, features, env)
    if isinstance(policy.network, ConvNet) and isinstance(features, PictureFeatures):
        inputs = policy.network.inputs
        _require_equal("observations", "network's inputs", inputs, features.shape, env)
    return policy


def _require_equal(what: str, of: str, has: object, wanted: object, env: envs.BatchEnv) -> None:
    if has != wanted:
        env.close()
        raise ValueError(
            f"the policy does not fit the {what} of {env.env_id}: its {of} should be {wanted},"
            f" got {has}"
        )


def build_policy(config: TrainConfig, features: int, env: envs.BatchEnv) -> Policy:
    """The policy that the configuration describes, for the spaces of an environment."""
    distribution = _distribution(env)
    if isinstance(features, PictureFeatures):
        network = _convolutions(config, features, distribution.num_outputs)
    else:
        network = MLP(
            features,
            config.policy.hidden,
            distribution.num_outputs,
            hidden_biases=config.policy.hidden_biases,
            output_scale=config.policy.output_scale,
        )
    return Policy(network, distribution, config.policy.initial_log_std)


def _distribution(env: envs.BatchEnv) -> DiagGaussian | Categoricals:
    kind = action_kind(env.action_space)
    return DiagGaussian(kind) if isinstance(kind, int) else Categoricals(kind)


def _convolutions(config: TrainConfig, features: PictureFeatures, outputs: int) -> ConvNet:
    policy = config.policy
    if not policy.hidden_biases:
        raise ValueError("a policy that looks at pictures always has hidden biases")
    return ConvNet(
        features.shape, policy.channels, policy.hidden, outputs, output_scale=policy.output_scale
    )


def build_critic(config: TrainConfig, features: int) -> Critic | None:
    """What estimates V, if anything needs it: vine does for a bootstrap alone."""
    settings = config.estimation
    if config.sampling.is_vine and not config.sampling.vine.bootstrap:
        return None
    match settings.critic:
        case "none":
            return None
        case "linear":
            if isinstance(features, PictureFeatures):
                raise ValueError("a linear critic cannot look at pictures: set critic to mlp")
            return LinearCritic(features)
        case "mlp":
            pictures = isinstance(features, PictureFeatures)
            return MLPCritic(
                features.shape if pictures else features,
                settings.critic_hidden,
                settings.critic_learning_rate,
                settings.critic_epochs,
                settings.critic_minibatch,
                config.policy.channels,
            )


def build_sampler(
    config: TrainConfig,
    env: envs.BatchEnv,
    make_env: MakeEnv,
    policy: Policy,
    encode: Encoder,
    *,
    shard: int = 0,
) -> tuple[SinglePath | Vine, Estimator]:
    """What collects samples, and the estimator that goes with it."""
    sampling, vine = config.sampling, config.sampling.vine
    if not sampling.is_vine:
        sampler = SinglePath(
            env,
            policy,
            encode,
            steps=sampling.steps_per_env,
            whole_paths=sampling.whole_paths,
            seed=config.seed,
            shard=shard,
        )
        return sampler, Estimator.IMPORTANCE
    sampler = Vine(
        env,
        make_env,
        policy,
        encode,
        trunk_length=vine.trunk_length,
        states=vine.states,
        actions=vine.actions,
        rollout_length=vine.rollout_length,
        gamma=config.estimation.gamma,
        proposal=vine.proposal,
        common_random_numbers=vine.common_random_numbers,
        seed=config.seed,
        shard=shard,
    )
    every = sampler.proposal is Proposal.EVERY
    return sampler, Estimator.ENUMERATED if every else Estimator.SELF_NORMALIZED
