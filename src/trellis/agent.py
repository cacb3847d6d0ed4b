"""The Python interface: `TRPO` with learn, predict, evaluate, save and load.

agent = TRPO("Hopper-v5", seed=0)
agent.learn(total_timesteps=1_000_000)
action = agent.predict(observation, deterministic=True)
agent.save("hopper")
agent = TRPO.load("hopper")
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trellis import envs, presets
from trellis.checkpoint_format import CHECKPOINTS, Checkpoint, Header
from trellis.config import PolicyConfig, TrainConfig
from trellis.envs.consent import require_consent
from trellis.policies.policy import Policy
from trellis.policies.saved import Actor, SavedPolicy, read_agent
from trellis.runs import checkpoint
from trellis.runs.folder import RunFolderError, as_json, locked, make_folder, write_config
from trellis.runs.log import METRICS
from trellis.runs.run import Callback, advance
from trellis.runs.run_state import restore
from trellis.runs.trainers import make_trainer
from trellis.safe_files import is_there
from trellis.training.base import TrainerBase
from trellis.training.build import MakeEnv, env_maker
from trellis.training.checkpoint_arrays import check_header, require_state
from trellis.training.evaluation import Evaluation, Evaluator
from trellis.training.state import TrainState, from_arrays

CALLABLE_PREFIX = "callable:"
"""Prefix of the name of an environment that was given as a callable."""

EnvSource = str | Callable[..., Any]
"""An environment id, or a callable that returns a new `gymnasium.Env`."""


class TRPO:
    """Agent that trains a policy with Trust Region Policy Optimization.

    Args:
        env: Gymnasium id such as "Hopper-v5", or a callable that returns a new `gymnasium.Env`.
            The callable gets the `env_options` of the settings as keyword arguments.
        seed: Seed of all random numbers.
        preset: Name of a preset (`trellis presets` lists them). Default: the environment's own.
        policy: Your own `Policy`, or changes to the settings of the default policy, such as
            `{"hidden": (32,)}`.
        **settings: Fields of `TrainConfig`. A dictionary changes some settings of a part, such as
            `step={"max_kl": 0.02}`. A dataclass such as `StepConfig` replaces the whole part. The
            other methods of the paper are settings too: `step={"method": "cem"}`.

    Raises:
        ValueError: A setting is invalid, or there is no such preset or environment.
        TypeError: There is no such setting.

    Example:
        >>> agent = TRPO("CartPole-v1", seed=0).learn(total_timesteps=50_000)
        >>> agent.evaluate(episodes=10).mean_return > 100
        True
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        seed: int = 0,
        preset: str | None = None,
        policy: Policy | PolicyConfig | Mapping[str, Any] | None = None,
        **settings: Any,
    ):
        if not isinstance(policy, Policy | None):
            settings["policy"], policy = policy, None
        config = _changed(presets.resolve(_name(env), preset), {"seed": seed, **settings})
        as_json(config)  # Settings that cannot be saved are refused before training.
        self._make_env, self._checkpoint = _maker(env, config), None
        self._untrusted: tuple[str | Path, bool] | None = None
        """Folder whose settings name the environment, and whether the user trusts it."""
        self._trainer: TrainerBase[Any] | None = make_trainer(config, self._make_env, policy)
        self._state: TrainState = self._trainer.start()
        self._acting = self._trainer.policy_of(self._state)
        self._evaluator = Evaluator(self._make_env or env_maker(config))
        self._rng = np.random.default_rng(seed)

    @property
    def config(self) -> TrainConfig:
        """All settings of the agent."""
        return self._acting.config

    @property
    def policy(self) -> Policy:
        """The policy π_θ: network and action distribution, without parameters."""
        return self._acting.policy

    @property
    def theta(self) -> np.ndarray:
        """Parameters θ of the policy, as one flat vector."""
        return self._state.theta

    @property
    def steps(self) -> int:
        """Number of simulator steps so far."""
        return self._state.steps

    def learn(
        self, total_timesteps: int | None = None, callback: Callback | Iterable[Callback] = ()
    ) -> "TRPO":
        """Train for this many more simulator steps, rounded up to whole iterations.

        Args:
            total_timesteps: Number of steps. Default: `total_steps` and `max_iterations` of the
                settings.
            callback: Function, or several functions, called after each iteration with its state and
                metrics. Training stops if one returns False.

        Returns:
            The agent itself.
        """
        total = self.config.total_steps if total_timesteps is None else total_timesteps
        if total < 1:
            raise ValueError(f"total_timesteps must be at least 1, got {total}")
        trainer = self._open_trainer()
        target, most = self._state.steps + total, self.config.max_iterations
        last = self._state.iteration + most if total_timesteps is None and most else None

        def keep(state: TrainState, _: dict[str, Any]) -> None:
            self._state, self._acting = state, trainer.policy_of(state)

        advance(
            trainer,
            self._state,
            lambda state: state.steps >= target or state.iteration == last,
            [keep, *([callback] if callable(callback) else callback)],
        )
        return self

    def predict(self, observation: Any, deterministic: bool = False) -> Any:
        """Return the action for one observation, or one action per observation of a batch.

        Args:
            observation: Observation as the environment returns it.
            deterministic: Whether to take the most probable action instead of sampling one.
        """
        return self._acting.act(observation, deterministic, self._rng)

    def actor(self) -> Actor:
        """Return a function from observations of a `BatchEnv` to actions for its `step`."""
        return self._acting.actor(self._rng)

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Evaluate the policy on separate environments.

        Actions are the most probable ones. With the setting `eval_drawn` they are sampled.

        Args:
            episodes: Number of episodes.
        """
        self._require_consent()
        return self._evaluator.evaluate(self._acting, episodes)

    def save(self, path: str | Path) -> None:
        """Save settings, parameters, statistics and environment snapshots into a folder.

        An agent that was saved there before is replaced in one step: a process that is killed
        leaves the old agent or the new one. A training run is never replaced.

        Args:
            path: Folder to write.

        Raises:
            RunFolderError: The folder holds a training run.
        """
        folder = Path(path)
        if is_there(folder, METRICS):
            raise RunFolderError(
                f"{folder} holds a training run, whose checkpoints would be lost: save to another"
                " folder"
            )
        if self._trainer is None:  # As it was loaded.
            assert self._checkpoint is not None
            arrays, values = self._checkpoint.arrays, self._checkpoint.values
        else:
            arrays, values = self._trainer.to_checkpoint(self._state)
        iteration, config = self._state.iteration, as_json(self.config)
        make_folder(folder)
        with locked(folder):
            # The checkpoint holds the settings too: config.json is a copy for people.
            checkpoint.save(folder / CHECKPOINTS, iteration, arrays, values, keep=1, config=config)
            write_config(folder, self.config)

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvSource | None = None,
        policy: Policy | None = None,
        *,
        trust_env: bool = False,
    ) -> "TRPO":
        """Load an agent from a folder that `save` or a training run has written.

        Loading runs no code from the folder. It creates an environment only if `env` names another
        one; otherwise `learn`, `evaluate` and `save` create it when they need it.

        Args:
            path: Folder of the agent or run.
            env: The environment, if it was a callable, or another one with the same spaces.
            policy: The policy, if it was your own.
            trust_env: Whether `learn` and `evaluate` may import the module that the folder names
                for its environment. Environments of Gymnasium and Trellis, modules that are
                imported already, and an environment that you pass as `env` need no consent.

        Returns:
            The agent, which can act and continue to learn.
        """

        def check(config: TrainConfig, header: Header) -> None:
            if env is None and config.env.startswith(CALLABLE_PREFIX):
                raise ValueError(
                    f"{path} was trained on {config.env}: pass it as load(path, env=…)"
                )
            check_header(config, header, policy)

        config, saved = read_agent(path, check)
        name = config.env if env is None else _name(env)
        acting = SavedPolicy.from_checkpoint(saved, config, policy=policy)
        require_state(saved.arrays, saved.values, config, acting.policy, acting.spaces)
        other = name != config.env
        if other:  # The snapshots of its environments mean nothing to another one.
            config = dataclasses.replace(config, env=name)
            acting = dataclasses.replace(acting, config=config)
            arrays = {k: v for k, v in saved.arrays.items() if not k.startswith(("env/", "path/"))}
            saved = saved._replace(arrays=arrays)
        agent = cls.__new__(cls)
        agent._make_env, agent._checkpoint = _maker(env, config), saved
        agent._untrusted = None if env is not None else (path, trust_env)
        agent._trainer, agent._evaluator = None, Evaluator(agent._make_env or env_maker(config))
        agent._state, agent._acting = from_arrays(saved.arrays, saved.values), acting
        agent._rng = np.random.default_rng(config.seed)
        if other:  # Checks that its spaces are those of the policy.
            agent._open_trainer()
        return agent

    def close(self) -> None:
        """Close all environments of the agent."""
        self._evaluator.close()
        if self._trainer is not None:
            self._trainer.close()

    def _open_trainer(self) -> TrainerBase[Any]:
        """Return the trainer. The first call after `load` creates it, with its environments."""
        if self._trainer is None:
            assert self._checkpoint is not None
            self._require_consent()
            self._trainer = make_trainer(self.config, self._make_env, self.policy)
            saved: Checkpoint = self._checkpoint
            self._state = restore(self._trainer, saved)
            self._checkpoint = None
        return self._trainer

    def _require_consent(self) -> None:
        """Raise `ConsentError` if the folder that was loaded names a module without consent."""
        if self._untrusted is not None:
            path, trusted = self._untrusted
            require_consent(self.config.env, self.config.env_options, path, trusted=trusted)


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Return settings with changes. A dictionary changes a part of the old value."""
    known = [field.name for field in dataclasses.fields(config)]
    unknown = ", ".join(sorted(changes.keys() - set(known)))
    if unknown:
        kind = type(config).__name__
        raise TypeError(f"{kind} has no setting {unknown}; it has {', '.join(known)}")

    def value(name: str, new: Any) -> Any:
        old = getattr(config, name)
        if not isinstance(new, Mapping):
            return new
        return _changed(old, new) if dataclasses.is_dataclass(old) else {**(old or {}), **new}

    return dataclasses.replace(config, **{name: value(name, new) for name, new in changes.items()})


def _name(env: EnvSource) -> str:
    """Return the id of an environment, or the name of a callable with a prefix."""
    if isinstance(env, str):
        return env
    return CALLABLE_PREFIX + getattr(env, "__name__", type(env).__name__)


def _maker(env: EnvSource | None, config: TrainConfig) -> MakeEnv | None:
    """Return a function that creates batches from a callable, or None for an id."""
    if env is None or isinstance(env, str):
        return None
    return lambda num_envs: envs.make(env, num_envs, **config.env_options)
