"""Defines the interface of all trainers: start, iterate, evaluate, checkpoint.

`runs/run.py` trains with either of them: `Trainer` (update rules) or `SearchTrainer` (CEM, CMA).
"""

import abc
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from trellis.checkpoint_format import MismatchError
from trellis.config import TrainConfig
from trellis.policies.policy import Policy
from trellis.policies.saved import SavedPolicy
from trellis.policies.saved_layout import describe
from trellis.strict_json import shown
from trellis.training.build import MakeEnv, Model, env_maker
from trellis.training.checkpoint_arrays import require_state
from trellis.training.evaluation import Evaluation, Evaluator
from trellis.training.state import TrainState

logger = logging.getLogger(__name__)

State = TypeVar("State", bound=TrainState)


class TrainerBase(abc.ABC, Generic[State]):
    """Trainer of one configuration: call `start` once, then `iterate` until the run is over.

    Args:
        config: Settings of the run.
        model: Policy and critic for the spaces of the environment.
        make_env: Function that creates batches for evaluations; by default from `config.env`.
    """

    inexact: str = ""
    """Reason why a run cannot be resumed bit for bit; empty if it can."""

    def __init__(self, config: TrainConfig, model: Model, make_env: MakeEnv | None):
        self.config, self.model = config, model
        self._evaluator = Evaluator(make_env or env_maker(config))

    @property
    def policy(self) -> Policy:
        """Description of π_θ."""
        return self.model.policy

    @abc.abstractmethod
    def start(self) -> State:
        """Return the state before the first iteration."""

    @abc.abstractmethod
    def iterate(self, state: State) -> tuple[State, dict[str, Any]]:
        """Run one iteration and return the next state and its metrics."""

    @abc.abstractmethod
    def to_checkpoint(self, state: State) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state, with the environments, as named arrays and plain values."""

    @abc.abstractmethod
    def from_checkpoint(self, arrays: dict[str, np.ndarray], values: Mapping[str, Any]) -> State:
        """Return the state of a checkpoint, ready for `iterate`."""

    def policy_of(self, state: TrainState, *, best: bool = False) -> SavedPolicy:
        """Return the policy of a state: the last one, or the one with the best evaluation."""
        theta, moments = state.chosen(best=best)
        is_best = best and state.best_theta is not None
        return SavedPolicy(
            *(self.policy, theta, moments, self.model.spaces, self.config),
            iteration=state.best_iteration if is_best else state.iteration,
            steps=state.best_steps if is_best else state.steps,
            is_best=is_best,
        )

    def evaluate(self, state: TrainState, episodes: int, *, best: bool = False) -> Evaluation:
        """Play episodes in separate environments, from seeds that depend on the run's seed only."""
        return self._evaluator.evaluate(self.policy_of(state, best=best), episodes)

    def with_evaluation(self, state: State) -> tuple[State, dict[str, Any]]:
        """Evaluate a state; return it with its best policy, and what this adds to the metrics."""
        evaluation = self.evaluate(state, self.config.eval_episodes)
        if evaluation.mean_return > state.best_return:
            state = dataclasses.replace(
                state,
                best_return=evaluation.mean_return,
                best_theta=state.theta,
                best_moments=state.observation_moments,
                best_iteration=state.iteration,
                best_steps=state.steps,
            )
        return state, {
            "eval_return_mean": evaluation.mean_return,
            "eval_return_std": evaluation.std_return,
            "eval_length_mean": evaluation.mean_length,
        }

    def watch(self, on_steps: Callable[[str, int], None]) -> None:
        """Report steps of slow environments while they are made, for a progress display.

        Args:
            on_steps: Function of what the steps are for ("sampling" or "evaluating") and their
                number.
        """
        self._evaluator.watch = functools.partial(on_steps, "evaluating")

    def close(self) -> None:
        """Close all environments and release all workers."""
        self._evaluator.close()

    def _warn_if_inexact(self, consequence: str) -> None:
        """Warn that a run does not continue bit for bit, if so, and say what happens instead."""
        if self.inexact:
            logger.warning("%s: %s, but not bit for bit.", self.inexact, consequence)

    def _require_same_make(
        self, arrays: Mapping[str, np.ndarray], values: Mapping[str, Any]
    ) -> None:
        """Raise `MismatchError` if a checkpoint is of another environment or kind of policy."""
        ours = describe(self.model.spaces, self.policy)
        texts = values.get("spaces")
        for name, text in ours["spaces"].items():
            found = texts.get(name) if isinstance(texts, Mapping) else None
            if found != text:
                raise MismatchError(
                    f"this checkpoint is of another environment: its {name} is"
                    f" {shown(found, 200, quotes=False)}, that of {self.config.env} is {text}"
                )
            key = name.replace(" ", "_")  # The first checkpoints described spaces in words only.
            if values.get(key, ours[key]) != ours[key]:
                raise MismatchError(
                    f"this checkpoint is of another environment: its {key} is"
                    f" {shown(values[key], 200)}, that of {self.config.env} is"
                    f" {shown(ours[key], 200)}"
                )
        require_state(arrays, values, self.config, self.policy, self.model.spaces)
