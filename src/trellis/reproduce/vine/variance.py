"""Section 5.2's claim in numbers: what vine's rollouts and common random numbers bring.

Two measurements, on the paper's hopper and on CartPole-v1, before learning and on the way:

- common random numbers: the variance of Q̂(s, a₁) − Q̂(s, a₂) over the noise, at fixed states and
  actions, with and without them;
- gradients: the variance of the surrogate's gradient by vine and by single path, per Q-value and
  per simulator step.

A gradient's variance is the trace of its covariance over repeated batches, divided by the squared
norm of its mean: the two samplers' targets differ in length (vine's is short by 1 − 1/K, and its Q
is cut at the rollout length), and what matters is noise against signal. Times the number of
Q-values in the batch it is the variance per Q-value; likewise per step.

`run` writes vine-variance.json and vine-variance.png, which is drawn from the JSON alone.
"""

import argparse
import dataclasses
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trellis import presets
from trellis.blas import one_blas_thread
from trellis.config import SamplingConfig, TrainConfig
from trellis.estimation import advantages as batches
from trellis.estimation.returns import path_returns
from trellis.estimation.surrogate import Estimator, cut, sum_gradient
from trellis.policies.policy import Policy
from trellis.reproduce.record import as_text
from trellis.reproduce.vine.figure import draw
from trellis.runs.provenance import commit
from trellis.sampling.proposals import choose_proposal, propose
from trellis.sampling.rollouts import Rollouts
from trellis.sampling.samples import Samples
from trellis.sampling.single_path import SinglePath
from trellis.sampling.vine import Vine
from trellis.training.build import build_sampler, env_from_catalog
from trellis.training.trainer import Trainer

_compiled = jax.jit(sum_gradient, static_argnums=(0, 1))


@dataclass(frozen=True)
class Sweep:
    """What is measured, and how often."""

    batches: int = 20
    """Batches whose gradients are compared."""
    paths: int = 50
    """Single paths in a batch; they are independent, so the variance goes as 1/paths."""
    noises: int = 40
    """Draws of the noise from every state."""
    states: int = 200
    """From which rollouts start when the noise is drawn again and again."""
    walk: int = 200
    """Steps of the path that leads to these states."""
    seed: int = 0


def tasks() -> dict[str, tuple[TrainConfig, tuple[int, ...]]]:
    """Settings by name, and after how many iterations of vine to measure."""
    hopper = presets.resolve("trellis/PaperHopper-v0", "paper/hopper-vine")
    paper = presets.resolve("CartPole-v1", "paper/cartpole-vine")
    cartpole = dataclasses.replace(paper, policy=dataclasses.replace(paper.policy, hidden=(16,)))
    return {"the paper's hopper": (hopper, (0, 25)), "CartPole-v1": (cartpole, (0, 4))}


def run(
    out: Path,
    sweep: Sweep | None = None,
    chosen: dict[str, tuple[TrainConfig, tuple[int, ...]]] | None = None,
) -> dict[str, Any]:
    """Measures, and writes vine-variance.json and vine-variance.png to the folder `out`."""
    sweep = sweep or Sweep()
    started = time.perf_counter()
    rows = []
    for name, (config, moments) in (chosen or tasks()).items():
        config = dataclasses.replace(config, seed=sweep.seed)
        trainer = Trainer(config)
        state = trainer.start()
        for iterations in moments:
            while state.iteration < iterations:
                state, _ = trainer.iterate(state)
            subject = Subject(config, trainer.policy, trainer.encode, state.theta)
            rows.append(
                {
                    "task": name,
                    "iterations": iterations,
                    **measure_differences(subject, sweep),
                    "gradients": measure_gradients(subject, sweep),
                }
            )
        trainer.close()
    results = {
        "commit": commit(),
        "seconds": round(time.perf_counter() - started, 1),
        "sweep": asdict(sweep),
        "rows": rows,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "vine-variance.json").write_text(as_text(results), encoding="utf-8")
    draw(results, out / "vine-variance.png")
    return results


@dataclass(frozen=True)
class Subject:
    """What is measured: a policy at some θ, in settings without critic and normalization."""

    config: TrainConfig
    policy: Policy
    encode: Any
    theta: np.ndarray


def measure_differences(subject: Subject, sweep: Sweep) -> dict[str, float]:
    """Var(Q̂(s, a₁) − Q̂(s, a₂)) over the noise, with and without common random numbers."""
    config, policy, theta = subject.config, subject.policy, subject.theta
    vine, make_env = config.sampling.vine, env_from_catalog(config)
    env, everyone = make_env(sweep.states), np.arange(sweep.states)
    path = SinglePath(env, policy, subject.encode, steps=sweep.walk, seed=sweep.seed)
    _, here = path.collect(theta, _unchanged, None, 0)
    rows = env.snapshot(everyone)
    proposal, actions = choose_proposal(vine.proposal, policy.distribution, vine.actions)
    params, _ = policy.distribution_params(theta, here.observation)
    shape = actions, sweep.states
    rng = np.random.default_rng(sweep.seed)
    first, _ = propose(proposal, policy.distribution, params, shape, rng)
    spread = {}
    for common in (True, False):
        rollouts = Rollouts(
            make_env,
            policy,
            subject.encode,
            states=sweep.states,
            actions=actions,
            length=vine.rollout_length,
            gamma=config.estimation.gamma,
            common_random_numbers=common,
        )
        with one_blas_thread():
            drawn = [
                rollouts.run(theta, _unchanged, rows, first, rng).reward_sum
                for _ in range(sweep.noises)
            ]
        q = np.stack(drawn)
        one, other = np.triu_indices(actions, 1)
        spread[common] = float(np.var(q[:, one] - q[:, other], axis=0, ddof=1).mean())
        rollouts.close()
    env.close()
    return {
        "q_difference_var_common": spread[True],
        "q_difference_var_separate": spread[False],
        "factor": spread[False] / spread[True],
    }


def measure_gradients(subject: Subject, sweep: Sweep) -> dict[str, dict[str, float]]:
    """Noise over signal of ∇L by each sampler, per Q-value and per step."""
    config = subject.config
    vine = config.sampling.vine
    separate = dataclasses.replace(vine, common_random_numbers=False)
    samplings = {
        "vine": config.sampling,
        "vine, separate noise": dataclasses.replace(config.sampling, vine=separate),
        "single path": SamplingConfig(sweep.paths, vine.trunk_length, whole_paths=True),
    }
    found = {}
    for name, sampling in samplings.items():
        settings = dataclasses.replace(config, sampling=sampling)
        make_env = env_from_catalog(settings)
        env = make_env(sampling.paths)
        sampler, estimator = build_sampler(settings, env, make_env, subject.policy, subject.encode)
        gradients, q_values, steps = [], 0, 0
        for batch in range(sweep.batches):
            samples, _ = sampler.collect(subject.theta, _unchanged, None, batch)
            gradients.append(_gradient(subject, estimator, samples))
            steps += samples.steps
            rollouts = samples.branches
            q_values += samples.reward.size if rollouts is None else rollouts.length.size
        if isinstance(sampler, Vine):
            sampler.close()
        env.close()
        found[name] = noise_over_signal(np.stack(gradients), q_values, steps)
    return found


def _gradient(subject: Subject, estimator: Estimator, samples: Samples) -> np.ndarray:
    """∇L at θ_old from one batch."""
    weight = batches.state_weights(samples, 1.0)
    if samples.branches is None:
        gamma = subject.config.estimation.gamma
        q = path_returns(samples.reward, samples, np.zeros_like(samples.reward), gamma)
        batch = batches.path_batch(samples, batches.rescale(q, "center"), weight)
    else:
        batch = batches.vine_batch(samples, batches.rollout_values(samples.branches, 1.0), weight)
    chunks = cut(batch, weight.size, 1, np.float32)
    sums = _compiled(subject.policy, estimator, subject.theta, chunks)
    return np.asarray(sums.gradient, np.float64) / float(sums.surrogate_weight)


def noise_over_signal(gradients: np.ndarray, q_values: int, steps: int) -> dict[str, float]:
    """tr Cov over the squared norm of the mean, and that times Q-values and steps a batch."""
    count = len(gradients)
    noise = float(np.var(gradients, axis=0, ddof=1).sum())
    mean = gradients.mean(axis=0)
    signal = float(mean @ mean) - noise / count  # the mean's own noise is none
    if not signal > 0:
        raise RuntimeError(
            f"{count} batches are too few to tell the gradient from its noise; raise --batches"
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


def main() -> None:
    """`python -m trellis.reproduce.vine.variance --out DIR [--batches N]`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--batches", type=int, default=Sweep.batches, help="of each sampler")
    arguments = parser.parse_args()
    if arguments.batches < 2:
        parser.error("a variance needs two batches or more")
    results = run(arguments.out, Sweep(batches=arguments.batches))
    print(f"wrote vine-variance.json, vine-variance.png to {arguments.out}", end=" ")
    print(f"in {results['seconds']} s")


if __name__ == "__main__":
    main()
