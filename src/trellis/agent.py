"""The Python door, with the habits that people already have: learn, predict, save, load.

agent = TRPO("Hopper-v5", seed=0)
agent.learn(total_timesteps=1_000_000)
action = agent.predict(observation, deterministic=True)
agent.save("hopper"); agent = TRPO.load("hopper")
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from trellis import envs, presets
from trellis.config import PolicyConfig, TrainConfig
from trellis.policies.policy import Policy
from trellis.runs import checkpoint
from trellis.runs.folder import RunFolderError, as_json, locked, read_config, write_config
from trellis.runs.log import METRICS
from trellis.runs.trainers import make_trainer
from trellis.training.build import MakeEnv
from trellis.training.evaluation import Player
from trellis.training.state import Evaluation, TrainState

Callback = Callable[[TrainState, dict[str, Any]], bool | None]


class TRPO:
    """Trust Region Policy Optimization on any Gymnasium environment.

    Args:
        env: an id such as "Hopper-v5", or a callable that returns a new `gymnasium.Env` from the
            settings' `env_options`, if there are any.
        seed: of everything random.
        preset: named settings (`trellis presets` lists them); the environment's own by default.
        policy: a `Policy` of your own, for the features and actions of this environment; or, as the
            other settings, what to change about the usual one: `policy={"hidden": (32,)}`.
        **settings: any part of `TrainConfig`, by name. A dictionary changes what it names and
            leaves the rest as the preset has it: `step={"max_kl": 0.02}`; a `StepConfig` replaces
            the preset's. The methods that TRPO is compared with are there too:
            `step={"method": "cem"}`.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        *,
        seed: int = 0,
        preset: str | None = None,
        policy: Policy | PolicyConfig | Mapping[str, Any] | None = None,
        **settings: Any,
    ):
        if not isinstance(policy, Policy | None):
            settings["policy"], policy = policy, None
        known = {part.name for part in dataclasses.fields(TrainConfig)}
        unknown = settings.keys() - known
        if unknown:
            raise TypeError(
                f"TRPO has no setting {', '.join(sorted(unknown))}; there are"
                f" {', '.join(sorted(known))}"
            )
        config = _changed(presets.resolve(_name(env), preset), {"seed": seed, **settings})
        as_json(config)  # what could not be saved is refused before it is trained
        self._trainer = make_trainer(config, _maker(env, config), policy)
        self._state: TrainState = self._trainer.start()
        self._rng = np.random.default_rng(seed)

    @property
    def config(self) -> TrainConfig:
        """Every setting."""
        return self._trainer.config

    @property
    def policy(self) -> Policy:
        """The description of π_θ."""
        return self._trainer.policy

    @property
    def theta(self) -> np.ndarray:
        """θ."""
        return self._state.theta

    @property
    def steps(self) -> int:
        """Simulator steps so far."""
        return self._state.steps

    def learn(
        self, total_timesteps: int | None = None, callback: Callback | Iterable[Callback] = ()
    ) -> "TRPO":
        """Trains for so many more simulator steps, in whole iterations; by default for as many
        steps, and iterations, as the settings say.

        Callbacks get the state and the metrics of each iteration; one that returns False stops.
        """
        total = self.config.total_steps if total_timesteps is None else total_timesteps
        if total < 1:
            raise ValueError(f"total_timesteps must be at least 1, got {total}")
        callbacks = [callback] if callable(callback) else list(callback)
        target, most = self._state.steps + total, self.config.max_iterations
        last = self._state.iteration + most if total_timesteps is None and most else None
        while self._state.steps < target and self._state.iteration != last:
            self._state, metrics = self._trainer.iterate(self._state)
            answers = [call(self._state, metrics) for call in callbacks]
            if any(answer is not None and not answer for answer in answers):
                break
        return self

    def predict(self, observation: Any, deterministic: bool = False) -> Any:
        """The action for one observation, or a row for each of a batch, as the environment takes
        them: drawn from π_θ, or its mode."""
        single = _is_single(observation, self._trainer.env.observation_space)
        batch = _add_axis(observation) if single else observation
        normalize = self._trainer.normalizer(self._state.observation_moments)
        features = normalize(self._trainer.encode(batch))
        params, _ = self.policy.distribution_params(self._state.theta, features)
        if deterministic:
            action = self.policy.distribution.mode(params)
        else:
            noise = self.policy.distribution.noise(self._rng, (len(features),))
            action = self.policy.distribution.sample(params, noise)
        mapped = self._trainer.env.map_actions(action)
        return mapped[0] if single else mapped

    def player(self) -> Player:
        """From observations of a batch (`trellis.envs.make`) to actions for its `step`, as in
        evaluations. `predict` instead gives what a Gymnasium environment takes."""
        return self._trainer.player(self._state, self._rng)

    def evaluate(self, episodes: int = 10) -> Evaluation:
        """Episodes on environments of their own, without exploration noise unless `eval_drawn`."""
        return self._trainer.evaluate(self._state, episodes)

    def save(self, path: str | Path) -> None:
        """Everything into the folder `path`: settings, parameters, statistics, environments.

        What an agent has saved there before is replaced; a training run is not.
        """
        folder = Path(path)
        if (folder / METRICS).exists():
            raise RunFolderError(
                f"{folder} holds a training run, whose checkpoints would be lost: save to another"
                " folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        arrays, values = self._trainer.freeze(self._state)
        with locked(folder):
            checkpoint.save(folder / "checkpoints", self._state.iteration, arrays, values, keep=1)
            write_config(folder, self.config)

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: str | Callable[[], Any] | None = None,
        policy: Policy | None = None,
    ) -> "TRPO":
        """From a folder that `save`, or a training run, has written. Runs no code from it.

        An environment that was a callable, or a policy of your own, has to be given again; another
        environment may be given, if it has the same spaces.
        """
        folder = Path(path)
        if not (folder / "config.json").is_file():
            raise FileNotFoundError(f"{folder} is not a saved agent: it has no config.json")
        config = read_config(folder)
        agent = cls.__new__(cls)
        other = env is not None and _name(env) != config.env
        if env is not None:
            config = dataclasses.replace(config, env=_name(env))
        if env is None and config.env.startswith(CALLABLE_PREFIX):
            raise ValueError(f"{folder} was trained on {config.env}: pass it as load(path, env=…)")
        agent._trainer = make_trainer(config, _maker(env, config), policy)
        saved = checkpoint.load_latest(folder / "checkpoints")
        arrays = dict(saved.arrays)
        if other:  # Where the old one stood means nothing to it.
            arrays = {k: v for k, v in arrays.items() if not k.startswith(("env/", "path/"))}
        agent._state = agent._trainer.thaw(arrays, dict(saved.values))
        agent._rng = np.random.default_rng(config.seed)
        return agent

    def close(self) -> None:
        """Lets go of the environments."""
        self._trainer.close()


CALLABLE_PREFIX = "callable:"


def _changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """Settings with these changed; a dictionary goes into what is there."""

    def value(name: str, new: Any) -> Any:
        old = getattr(config, name, None)
        if not isinstance(new, Mapping):
            return new
        return _changed(old, new) if dataclasses.is_dataclass(old) else {**(old or {}), **new}

    try:
        return dataclasses.replace(
            config, **{name: value(name, new) for name, new in changes.items()}
        )
    except TypeError as error:
        known = ", ".join(field.name for field in dataclasses.fields(config))
        raise TypeError(f"{error}; {type(config).__name__} has {known}") from None


def _name(env: str | Callable[..., Any]) -> str:
    if isinstance(env, str):
        return env
    return CALLABLE_PREFIX + getattr(env, "__name__", type(env).__name__)


def _maker(env: str | Callable[..., Any] | None, config: TrainConfig) -> MakeEnv | None:
    """None: by the id in the configuration."""
    if env is None or isinstance(env, str):
        return None
    return lambda num_envs: envs.make(env, num_envs, **config.env_options)


def _is_single(observation: Any, space: spaces.Space[Any]) -> bool:
    """Whether this is one observation rather than a batch of them: by its first part."""
    if isinstance(space, spaces.Dict):
        name = next(iter(space.spaces))
        return _is_single(observation[name], space[name])
    if isinstance(space, spaces.Tuple):
        return _is_single(observation[0], space[0])
    return np.ndim(observation) == len(space.shape or ())


def _add_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _add_axis(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_add_axis(value) for value in observation)
    return np.asarray(observation)[None]
