"""The claims of Section 5.2 in numbers: variance with vine and with common random numbers.

There are two measurements, on the paper's hopper and on CartPole-v1, before and after some
learning:

- common random numbers: the variance of Q̂(s, a₁) − Q̂(s, a₂) over the noise, at fixed states and
  actions, with and without them;
- gradients: the variance of the surrogate's gradient with vine and with single path, per Q-value
  and per simulator step; single path with the constant and with the time baseline.

The variance of a gradient is the trace of its covariance over repeated batches, divided by the
squared norm of its mean. This compares noise with signal, since the samplers' targets differ in
length: vine's is short by 1 − 1/K, and its Q is cut at the rollout length. The variance per Q-value
is that number times the Q-values of a batch, and the variance per step is that number times its
steps.
"""

import dataclasses
from dataclasses import dataclass

import jax
import numpy as np

from trellis import presets
from trellis.blas import one_blas_thread
from trellis.config import EstimationConfig, SamplingConfig, TrainConfig
from trellis.estimation.advantages import estimate, state_batch
from trellis.estimation.state_batch import cut
from trellis.estimation.surrogate import Estimator, gradient_and_outputs
from trellis.sampling.proposals import choose_proposal, propose
from trellis.sampling.rollouts import Rollouts
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import SinglePath
from trellis.sampling.vine import Vine
from trellis.training.build import build_sampler, env_maker
from trellis.training.trainer import Trainer

_compiled = jax.jit(gradient_and_outputs, static_argnums=(0, 1))


@dataclass(frozen=True)
class VarianceSweep:
    """Sizes of the measurements."""

    batches: int = 20
    """Number of batches whose gradients are compared."""
    paths: int = 50
    """Number of single paths in a batch; the variance is proportional to 1/paths."""
    noises: int = 40
    """Number of noise samples per state."""
    states: int = 200
    """Number of states from which rollouts start."""
    walk: int = 200
    """Length of the path that leads to these states, in steps."""
    seed: int = 0

    def __post_init__(self):
        if self.batches < 2:
            raise ValueError(f"batches must be at least 2, got {self.batches}")


def tasks() -> dict[str, tuple[TrainConfig, tuple[int, ...]]]:
    """Return the settings of each task, and the iterations of vine after which to measure."""
    hopper = presets.resolve("trellis/PaperHopper-v0", "paper/hopper-vine")
    paper = presets.resolve("CartPole-v1", "paper/cartpole-vine")
    cartpole = dataclasses.replace(paper, policy=dataclasses.replace(paper.policy, hidden=(16,)))
    return {"the paper's hopper": (hopper, (0, 25)), "CartPole-v1": (cartpole, (0, 4))}


def measure_differences(
    trainer: Trainer, theta: np.ndarray, sweep: VarianceSweep
) -> dict[str, float]:
    """Measure Var(Q̂(s, a₁) − Q̂(s, a₂)) over the noise, with and without common random numbers."""
    config, policy, encode = trainer.config, trainer.model.policy, trainer.model.encode
    vine, make_env = config.sampling.vine, env_maker(config)
    env = make_env(sweep.states)
    path = SinglePath(
        env, policy, encode, SamplingConfig(steps_per_env=sweep.walk), seed=sweep.seed
    )
    _, here = path.collect(theta, _unchanged, None, 0)
    snapshot = env.snapshot(np.arange(sweep.states))
    proposal, actions = choose_proposal(vine, policy.distribution)
    params, _ = policy.distribution_params(theta, here.observation)
    rng = np.random.default_rng(sweep.seed)
    first, _ = propose(proposal, policy.distribution, params, (actions, sweep.states), rng)
    variance = {}
    for common in (True, False):
        rollouts = Rollouts(
            *(make_env, policy, encode),
            dataclasses.replace(vine, states=sweep.states, common_random_numbers=common),
            actions=actions,
            gamma=config.estimation.gamma,
        )
        with one_blas_thread():
            tries = range(sweep.noises)
            runs = [rollouts.run(theta, _unchanged, snapshot, first, rng) for _ in tries]
        q = np.stack([run.reward_sum for run in runs])
        one, other = np.triu_indices(actions, 1)
        variance[common] = float(np.var(q[:, one] - q[:, other], axis=0, ddof=1).mean())
        rollouts.close()
    env.close()
    return {
        "q_difference_var_common": variance[True],
        "q_difference_var_separate": variance[False],
        "factor": variance[False] / variance[True],
    }


def measure_gradients(
    trainer: Trainer, theta: np.ndarray, sweep: VarianceSweep
) -> dict[str, dict[str, float]]:
    """Measure the noise over signal of ∇L for each sampler, per Q-value and per step."""
    config, vine = trainer.config, trainer.config.sampling.vine
    separate = dataclasses.replace(vine, common_random_numbers=False)
    samplings = {
        "vine": config.sampling,
        "vine, separate noise": dataclasses.replace(config.sampling, vine=separate),
        "single path": SamplingConfig(sweep.paths, vine.trunk_length, whole_paths=True),
    }
    found = {}
    for name, sampling in samplings.items():
        settings = dataclasses.replace(config, sampling=sampling)
        make_env = env_maker(settings)
        env = make_env(sampling.paths)
        sampler, estimator = build_sampler(settings, env, make_env, trainer.model)
        baselines = {name: config.estimation}
        if not sampling.is_vine:
            baselines = {
                f"{name}{suffix}": dataclasses.replace(config.estimation, baseline=baseline)
                for suffix, baseline in (("", "constant"), (", time baseline", "time"))
            }
        gradients, q_values, steps = {each: [] for each in baselines}, 0, 0
        for batch in range(sweep.batches):
            samples, _ = sampler.collect(theta, _unchanged, None, batch)
            for each, estimation in baselines.items():
                gradients[each].append(_gradient(trainer, theta, estimator, samples, estimation))
            steps += samples.steps
            rollouts = samples.branches
            q_values += samples.reward.size if rollouts is None else rollouts.length.size
        if isinstance(sampler, Vine):
            sampler.close()
        env.close()
        for each, values in gradients.items():
            found[each] = noise_over_signal(np.stack(values), q_values, steps)
    return found


def _gradient(
    trainer: Trainer,
    theta: np.ndarray,
    estimator: Estimator,
    samples: Samples,
    settings: EstimationConfig,
) -> np.ndarray:
    """Return ∇L at θ_old from one batch."""
    values, found = estimate(samples, None, {}, settings, rng=np.random.default_rng())
    batch = state_batch(samples, values, found.values, settings)
    chunks = cut(batch, samples.reward.size, 1, np.float32)
    sums, _ = _compiled(trainer.model.policy, estimator, theta, chunks)
    return np.asarray(sums.gradient, np.float64) / float(sums.surrogate_weight)


def noise_over_signal(gradients: np.ndarray, q_values: int, steps: int) -> dict[str, float]:
    """Return tr Cov over the squared norm of the mean, also times Q-values and times steps."""
    count = len(gradients)
    noise = float(np.var(gradients, axis=0, ddof=1).sum())
    mean = gradients.mean(axis=0)
    signal = float(mean @ mean) - noise / count  # Without the noise of the mean.
    if not signal > 0:
        raise RuntimeError(
            f"{count} batches are too few to separate the gradient from its noise; raise --batches"
        )
    return {
        "q_values": q_values / count,
        "steps": steps / count,
        "noise_over_signal": noise / signal,
        "per_q_value": noise / signal * q_values / count,
        "per_step": noise / signal * steps / count,
    }


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x
