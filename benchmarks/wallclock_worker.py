"""Trains one opponent on one task for some minutes, and records its return against time.

    python -m benchmarks.wallclock_worker OPPONENT TASK SEED MINUTES FILE

The clock counts training only, compilation included. It stops for evaluations, which are the same
for all: `EPISODES` episodes without exploration noise. Opponents other than Trellis need no Trellis
in their environment. Settings are those of RL Zoo (rl-baselines3-zoo, hyperparams/trpo.yml and
ppo.yml) for the version of the task that it has; SBX has its own defaults.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPISODES = 10
"""Number of episodes of an evaluation."""
EVALUATIONS = 40
"""Number of evaluations, at equal intervals of training time."""
TRPO = {
    "batch_size": 128,
    "n_steps": 1024,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "sub_sampling_factor": 1,
    "cg_max_steps": 25,
    "cg_damping": 0.1,
    "n_critic_updates": 20,
    "learning_rate": 1e-3,
}
TRPO_OF = {"HalfCheetah-v5": {"target_kl": 0.04}, "Swimmer-v5": {"gamma": 0.9999}}
PPO_OF: dict[str, dict[str, Any]] = {
    "HalfCheetah-v5": {
        "batch_size": 64,
        "n_steps": 512,
        "gamma": 0.98,
        "learning_rate": 2.0633e-05,
        "ent_coef": 0.000401762,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.92,
        "max_grad_norm": 0.8,
        "vf_coef": 0.58096,
        "wide": True,
    },
    "Hopper-v5": {
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.999,
        "learning_rate": 9.80828e-05,
        "ent_coef": 0.00229519,
        "clip_range": 0.2,
        "n_epochs": 5,
        "gae_lambda": 0.99,
        "max_grad_norm": 0.7,
        "vf_coef": 0.835671,
        "wide": True,
    },
    "Walker2d-v5": {
        "batch_size": 32,
        "n_steps": 512,
        "gamma": 0.99,
        "learning_rate": 5.05041e-05,
        "ent_coef": 0.000585045,
        "clip_range": 0.1,
        "n_epochs": 20,
        "gae_lambda": 0.95,
        "max_grad_norm": 1,
        "vf_coef": 0.871923,
    },
    "Swimmer-v5": {"gamma": 0.9999},
    "Ant-v5": {},
}
"""RL Zoo's settings of PPO; `wide` stands for its networks of 256 × 256 ReLU with log std −2."""


class Clock:
    """Training time that stops during evaluations, and the record of the evaluations.

    Args:
        seconds: Length of the training.
        evaluate: Function that returns the mean return of the current policy.
        path: File that receives the points.
        start: `time.perf_counter()` before the model was made.
    """

    def __init__(self, seconds: float, evaluate: Callable[[], float], path: Path, start: float):
        self._seconds, self._evaluate, self._path = seconds, evaluate, path
        self._points: list[dict[str, float]] = []
        self._stopped, self._start = 0.0, start

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self._start - self._stopped

    def tick(self, steps: int) -> bool:
        """Evaluate if it is time, and return whether training goes on."""
        now = self.elapsed
        over = now >= self._seconds
        if over or now >= len(self._points) * self._seconds / EVALUATIONS:
            before = time.perf_counter()
            point = {"seconds": now, "steps": steps, "return": self._evaluate()}
            self._points.append({name: round(float(value), 3) for name, value in point.items()})
            self._path.write_text(json.dumps(self._points))
            self._stopped += time.perf_counter() - before
        return not over


def train_trellis(task: str, seed: int, seconds: float, path: Path) -> None:
    import dataclasses

    from trellis import presets
    from trellis.training.trainer import Trainer

    start = time.perf_counter()
    trainer = Trainer(dataclasses.replace(presets.resolve(task), seed=seed))
    state = trainer.start()
    clock = Clock(seconds, lambda: trainer.evaluate(state, EPISODES).mean_return, path, start)
    while clock.tick(state.steps):
        state, _ = trainer.iterate(state)
    trainer.close()


def train_stable_baselines(
    make: Callable[[Any], Any], task: str, seed: int, seconds: float, path: Path, num_envs: int
) -> None:
    """Train a model of Stable-Baselines3's family.

    Args:
        make: Function from the vector environment to the model.
        task: Gymnasium id.
        seed: Seed of the environments.
        seconds: Length of the training.
        path: File that receives the points.
        num_envs: Number of environments; 0 for one that is not normalized (off-policy methods).
    """
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

    start = time.perf_counter()
    env: Any = make_vec_env(task, n_envs=max(num_envs, 1), seed=seed)
    judge: Any = make_vec_env(task, n_envs=1, seed=seed + 10_000)
    if num_envs:
        env = VecNormalize(env)
        judge = VecNormalize(judge, training=False, norm_reward=False)
    model = make(env)
    if num_envs:
        env.gamma = model.gamma  # RL Zoo normalizes rewards with the method's own γ.

    def evaluate() -> float:
        if num_envs:
            sync_envs_normalization(model.get_env(), judge)
        return float(evaluate_policy(model, judge, n_eval_episodes=EPISODES)[0])

    clock = Clock(seconds, evaluate, path, start)

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            return clock.tick(self.num_timesteps)

    model.learn(10**9, callback=Watch())


def make_trpo(task: str, seed: int) -> Callable[[Any], Any]:
    import sb3_contrib

    settings = {**TRPO, **TRPO_OF.get(task, {})}
    return lambda env: sb3_contrib.TRPO("MlpPolicy", env, seed=seed, device="cpu", **settings)


def make_ppo(task: str, seed: int) -> Callable[[Any], Any]:
    import stable_baselines3
    import torch

    settings = dict(PPO_OF.get(task, {}))
    if settings.pop("wide", False):
        settings["policy_kwargs"] = {
            "log_std_init": -2,
            "ortho_init": False,
            "activation_fn": torch.nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        }
    return lambda env: stable_baselines3.PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)


def make_sbx(name: str, task: str, seed: int) -> Callable[[Any], Any]:
    import sbx  # pyright: ignore[reportMissingImports]

    settings: dict[str, Any] = {"learning_starts": 10_000}
    if task == "Swimmer-v5":
        settings["gamma"] = 0.9999
    kind = getattr(sbx, name)
    return lambda env: kind("MlpPolicy", env, seed=seed, **settings)


def main(opponent: str, task: str, seed: int, minutes: float, path: Path) -> None:
    """Train one opponent and write its points."""
    rest = task, seed, 60 * minutes, path
    if opponent == "trellis":
        train_trellis(*rest)
    elif opponent == "sb3-trpo":
        train_stable_baselines(make_trpo(task, seed), *rest, num_envs=2)
    elif opponent == "sb3-ppo":
        train_stable_baselines(make_ppo(task, seed), *rest, num_envs=1)
    elif opponent in ("sbx-sac", "sbx-crossq"):
        name = {"sbx-sac": "SAC", "sbx-crossq": "CrossQ"}[opponent]
        train_stable_baselines(make_sbx(name, task, seed), *rest, num_envs=0)
    else:
        raise ValueError(f"there is no opponent {opponent!r}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
