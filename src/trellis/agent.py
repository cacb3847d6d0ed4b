"""The Python interface: `TRPO` with learn, predict, evaluate, save and load."""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from trellis.agent_inputs import (
    CALLABLE_PREFIX,
    EnvSource,
    batch_maker,
    callback_list,
    names_of,
    one_env_maker,
    plan,
    require_arguments,
    settings_for,
)
from trellis.agent_loading import read_agent_for
from trellis.agent_training import train_in_memory
from trellis.checkpoint_format import Checkpoint
from trellis.config import PolicyConfig, TrainConfig
from trellis.envs.consent import require_consent, require_option_consent
from trellis.policies.policy import Policy
from trellis.policies.saved import Actor, SavedPolicy
from trellis.runs.callback import Callback
from trellis.runs.folder import as_json
from trellis.runs.run import train_from
from trellis.runs.run_state import restore, save_agent
from trellis.runs.trainers import make_trainer
from trellis.spaces import Space
from trellis.training.base import TrainerBase
from trellis.training.build import env_maker
from trellis.training.evaluation import Evaluation, Evaluator
from trellis.training.pace import fitted
from trellis.training.state import TrainState, from_arrays, get_parameters, with_parameters


class TRPO:
    """Agent that trains a policy with Trust Region Policy Optimization.

    Args:
        env: Gymnasium id such as "Hopper-v5", or a callable that returns a new `gymnasium.Env`.
            The callable gets the `env_options` of the settings as keyword arguments. Or an
            environment in JAX: a `trellis.envs.jax.functional.FunctionalEnv`.
        *extra: Not allowed. A second argument is an error with the line that works.
        seed: Seed of all random numbers.
        preset: Name of a preset (`trellis presets` lists them). Default: the environment's own.
        policy: Your own `Policy`, or changes to the settings of the default policy, such as
            `{"hidden": (32,)}`.
        **settings: Fields of `TrainConfig`. A dictionary changes some settings of a part, such as
            `step={"max_kl": 0.02}`. A dataclass such as `StepConfig` replaces the whole part. The
            other methods of the paper are settings too: `step={"method": "cem"}`.

    Raises:
        ValueError: A setting is invalid, or there is no such preset or environment.
        TypeError: There is no such setting, or `env` is an environment object. The message says
            what to write instead.

    Example:
        >>> with TRPO("CartPole-v1", seed=0) as agent:
        ...     agent.learn(total_timesteps=50_000, progress_bar=False)
        ...     agent.evaluate(episodes=10).mean_return > 100
        TRPO('CartPole-v1', method='trpo', seed=0, steps=51200, parameters=4610)
        True
    """

    def __init__(
        self,
        env: EnvSource,
        *extra: object,
        seed: int = 0,
        preset: str | None = None,
        policy: Policy | PolicyConfig | Mapping[str, Any] | None = None,
        **settings: Any,
    ):
        require_arguments(env, extra, policy)
        if not isinstance(policy, Policy | None):
            settings["policy"], policy = policy, None
        config = settings_for(env, preset, {"seed": seed, **settings})
        as_json(config)  # Settings that cannot be saved are refused before training.
        pace = fitted(config, names_of(settings), one_env_maker(env, config))
        config, self._pace = pace.config, str(pace)
        self._make_env, self._checkpoint = batch_maker(env, config), None
        self._untrusted: tuple[str | Path, bool, bool] | None = None
        """Folder that the settings come from, whether the user trusts it, and whether the user
        named the environment."""
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
    def saved_policy(self) -> SavedPolicy:
        """The policy with its parameters and statistics, which can act on its own."""
        return self._acting

    @property
    def theta(self) -> np.ndarray:
        """Parameters θ of the policy, as one flat vector."""
        return self._state.theta

    @property
    def steps(self) -> int:
        """Number of simulator steps so far."""
        return self._state.steps

    num_timesteps = steps

    @property
    def observation_space(self) -> Space:
        """Observation space of one environment."""
        return self._acting.spaces[0]

    @property
    def action_space(self) -> Space:
        """Action space of one environment."""
        return self._acting.spaces[1]

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: Callback | Iterable[Callback] | None = None,
        progress_bar: bool = True,
        log_dir: str | Path | None = None,
        eval_every: int | None = None,
        log_interval: int | None = None,
    ) -> Self:
        """Train for this many more simulator steps, rounded up to whole iterations.

        Args:
            total_timesteps: Number of steps. Default: `total_steps` and `max_iterations` of the
                settings.
            callback: Function, or several, called after each iteration with its state and metrics.
                False stops training. `trellis.callbacks` has some.
            progress_bar: Whether to show a bar on a terminal, or lines elsewhere.
            log_dir: Run folder for the log, the evaluations and the checkpoints of `trellis train`:
                a new folder, or the one that this agent wrote before. Default: no files.
            eval_every: Simulator steps between evaluations, besides one at the end; 0 for that one
                alone. Default: with `log_dir` the setting `eval_every`, else no evaluations.
            log_interval: Iterations between two lines of progress, which replace the bar.

        Returns:
            The agent itself.

        Raises:
            RunFolderError: `log_dir` holds another run.
            RunInterrupted: Ctrl-C stopped training in a run folder, after a checkpoint.
        """
        callbacks = callback_list(callback)
        config = plan(self.config, self._state, total_timesteps, eval_every, log_interval)
        trainer = self._open_trainer()

        def keep(state: TrainState, _: dict[str, Any]) -> None:
            self._state, self._acting = state, trainer.policy_of(state)

        callbacks, quiet = [keep, *callbacks], not progress_bar
        if self._pace and progress_bar:
            print(self._pace, file=sys.stderr)
            self._pace = ""
        shown = {"callbacks": callbacks, "quiet": quiet, "log_interval": log_interval}
        try:
            if log_dir is not None:
                train_from(trainer, log_dir, self._state, config, **shown)
            else:
                train_in_memory(trainer, self._state, config, eval_every=eval_every, **shown)
        finally:
            # With the agent's own settings: during training they had the planned length.
            self._acting = trainer.policy_of(self._state)
        return self

    def predict(
        self, observation: Any, deterministic: bool = False, *, action_mask: Any = None
    ) -> Any:
        """Return the action for one observation, or one action per observation of a batch.

        Args:
            observation: Observation as the environment returns it.
            deterministic: Whether to take the most probable action instead of sampling one.
            action_mask: Which actions are legal, if masks are not a part of the observations; for
                a batch, one row per observation.

        For code that expects a pair, write `action, _ = agent.predict(observation), None`.
        """
        return self._acting.act(observation, deterministic, self._rng, action_mask=action_mask)

    def episode(self, deterministic: bool = False) -> Callable[..., Any]:
        """Return a function from observations to actions for one episode.

        That of a policy with memory remembers what it has seen, which `predict` cannot. A mask that
        is not a part of the observations is passed along: `act(observation, action_mask=mask)`.

        Args:
            deterministic: Whether to take the most probable actions instead of sampling them.
        """
        return self._acting.episode(deterministic, self._rng)

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
        """
        if self._trainer is None:  # As it was loaded.
            assert self._checkpoint is not None
            arrays, values = self._checkpoint.arrays, self._checkpoint.values
        else:
            arrays, values = self._trainer.to_checkpoint(self._state)
        save_agent(Path(path), self.config, self._state.iteration, arrays, values)

    def get_parameters(self) -> dict[str, np.ndarray]:
        """Return copies of what the agent has learned, by name.

        `theta` is the policy. `critic/…` is the critic with its optimizer. `observation_moments/…`
        and `return_moments/…` are the running statistics.
        """
        return get_parameters(self._state)

    def set_parameters(self, parameters: Mapping[str, np.ndarray]) -> None:
        """Replace what the agent has learned by the result of `get_parameters`.

        Args:
            parameters: Arrays by name. Those that are left out stay.

        Raises:
            ValueError: A name, shape or value does not fit; nothing is changed then.
        """
        if self.config.step.is_search:
            method = self.config.step.method
            raise ValueError(f"set_parameters does not support {method}; load a saved agent")
        trainer = self._open_trainer()
        self._state = with_parameters(self._state, parameters)
        self._acting = trainer.policy_of(self._state)

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: EnvSource | None = None,
        policy: Policy | None = None,
        *,
        best: bool = False,
        trust_env: bool = False,
    ) -> Self:
        """Load an agent from a folder that `save` or a training run has written.

        Loading runs no code from the folder. It creates an environment only if `env` names another
        one; otherwise `learn`, `evaluate` and `save` create it when they need it.

        Args:
            path: Folder of the agent or run.
            env: The environment, if it was a callable, or another one with the same spaces.
            policy: The policy, if it was your own.
            best: Whether to take the policy with the best evaluation instead of the last one, to
                act and to learn from. Without an evaluation it is the last one, with a warning.
            trust_env: Whether `learn` and `evaluate` may import the module that the folder names
                for its environment, and use options of the folder that name files or take much
                time or memory. No module needs consent if it belongs to Gymnasium or Trellis, is
                imported already, or if you pass `env`. Such options need consent with `env`, too.

        Returns:
            The agent, which can act and continue to learn.
        """
        config, saved, acting, other = read_agent_for(path, env, policy, best=best)
        agent = cls.__new__(cls)
        agent._make_env, agent._checkpoint = batch_maker(env, config), saved
        agent._pace = ""
        agent._untrusted = path, trust_env, env is not None
        agent._trainer, agent._evaluator = None, Evaluator(agent._make_env or env_maker(config))
        agent._state, agent._acting = from_arrays(saved.arrays, saved.values), acting
        agent._rng = np.random.default_rng(config.seed)
        if other:  # Checks that its spaces are those of the policy.
            agent._open_trainer()
        return agent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        config = self.config
        return (
            f"TRPO({config.env!r}, method={config.step.method!r}, seed={config.seed},"
            f" steps={self.steps}, parameters={self.theta.size})"
        )

    def close(self) -> None:
        """Close all environments of the agent. It can act and be saved afterwards."""
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
        """Raise `ConsentError` if the folder names a module, or has options, without consent."""
        if self._untrusted is None:
            return
        path, trusted, named = self._untrusted
        env_id, options = self.config.env, self.config.env_options
        if self._make_env is None:
            require_consent(env_id, options, path, trusted=trusted, named=named)
        else:  # The user's own callable imports nothing, but gets the options of the folder.
            name = env_id.removeprefix(CALLABLE_PREFIX)
            require_option_consent(name, options, path, trusted=trusted)
