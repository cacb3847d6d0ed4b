"""Evaluates any policy in any environment: `evaluate_policy`.

Policies of Trellis play in a batch of environments. Any other object that predicts actions plays
one episode after the other in a Gymnasium environment.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from trellis import envs
from trellis.envs.batch import BatchEnv, Step
from trellis.envs.gym.masks import deliver_masks
from trellis.masks import OBSERVATION_KEY, mask_size, without_mask
from trellis.policies.saved import SavedPolicy
from trellis.rng import Purpose, stream
from trellis.spaces import Observation, Space, row_of
from trellis.training.evaluation import MAX_STEPS, Evaluation, play


class EvaluationStep(NamedTuple):
    """One step of one episode, for the callback of `evaluate_policy`."""

    episode: int
    """Number of the episode, from 0."""
    observation: Any
    """Observation after the step."""
    reward: float
    """Reward of the step."""
    terminated: bool
    """Whether the step ended the episode in a terminal state."""
    truncated: bool
    """Whether the step ended the episode early, for example at the time limit."""


OnEvaluationStep = Callable[[EvaluationStep], bool | None]
"""Called after every step of an evaluation; False stops the evaluation."""


@runtime_checkable
class Predictor(Protocol):
    """An agent of Trellis or of another library, such as Stable-Baselines3."""

    def predict(self, observation: Any, deterministic: bool = False) -> Any:
        """Return an action, or a pair of an action and a state."""


Actor = Callable[[Any], Any]
Policy = SavedPolicy | Predictor | Actor


def evaluate_policy(
    policy: Policy,
    env: str | Callable[..., gymnasium.Env] | gymnasium.Env | BatchEnv,
    episodes: int = 10,
    *,
    callback: OnEvaluationStep | None = None,
    deterministic: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Play episodes with a policy and return their returns and lengths.

    Args:
        policy: A `TRPO`, a `SavedPolicy`, any object with `predict(observation, deterministic=…)`
            such as a model of Stable-Baselines3, or a function from observations to actions.
        env: Environment to play in: an id, a callable that returns a new `gymnasium.Env`, an
            environment, or a `BatchEnv` with one environment per episode. Environments that you
            pass stay open.
        episodes: Number of episodes.
        callback: Function called after every step of every episode with an `EvaluationStep`. If it
            returns False, the evaluation stops, and episodes count as far as they went.
        deterministic: Whether to take the most probable actions instead of sampled ones.
        seed: Seed of the episodes and of sampled actions.

    Returns:
        The returns and lengths of the episodes.

    Example:
        >>> evaluate_policy(lambda observation: 0, "CartPole-v1", episodes=3).mean_length < 12
        True
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int | np.integer) or episodes < 1:
        raise ValueError(f"episodes must be a whole number of at least 1, got {episodes!r}")
    if isinstance(env, VectorEnv | list | tuple):
        raise TypeError(
            f"env is a {type(env).__name__}, but evaluate_policy makes its own copies: pass the"
            ' id, such as "CartPole-v1", or a callable that returns one environment'
        )
    saved = policy if isinstance(policy, SavedPolicy) else getattr(policy, "saved_policy", None)
    if isinstance(saved, SavedPolicy) and not isinstance(env, gymnasium.Env):
        return _in_batch(saved, env, episodes, callback, deterministic, seed)
    if isinstance(env, BatchEnv):
        raise TypeError("a BatchEnv needs a policy of Trellis; pass an id or a gymnasium.Env")
    if isinstance(saved, SavedPolicy):
        policy = saved  # `predict` has neither memory nor a seed.
    start = _start_of_episodes(policy, deterministic, seed)
    if isinstance(env, gymnasium.Env):
        if isinstance(saved, SavedPolicy) and mask_size(saved.spaces[0]):
            env = deliver_masks(env)
        return _one_by_one(start, env, episodes, callback, seed)
    made = gymnasium.make(env) if isinstance(env, str) else env()
    with contextlib.closing(made):
        return _one_by_one(start, made, episodes, callback, seed)


def _in_batch(
    policy: SavedPolicy,
    env: Any,
    episodes: int,
    callback: OnEvaluationStep | None,
    deterministic: bool,
    seed: int,
) -> Evaluation:
    """Play all episodes side by side."""
    rng = stream(seed, Purpose.EVALUATION)
    seeds = rng.integers(2**31, size=episodes)
    batch = env if isinstance(env, BatchEnv) else envs.make(env, episodes)
    if batch.num_envs != episodes:
        raise ValueError(
            f"env must have one environment per episode, {episodes}, got {batch.num_envs}"
        )

    def on_step(_: BatchEnv, step: Step, active: np.ndarray) -> bool:
        if callback is None:
            return True
        answers = []
        for index in np.flatnonzero(active).tolist():
            flags = bool(step.terminated[index]), bool(step.truncated[index])
            row = row_of(step.observation, index)
            answer = callback(EvaluationStep(index, row, float(step.reward[index]), *flags))
            answers.append(answer is not False)
        return all(answers)

    with contextlib.nullcontext() if batch is env else contextlib.closing(batch):
        space, seen = _seen_by(policy, batch.observation_space)
        policy.require_spaces((space, batch.action_space), batch.env_id)
        actor = policy.actor(rng, stochastic=not deterministic)
        return play(batch, lambda observation: actor(seen(observation)), seeds, on_step)


def _seen_by(
    policy: SavedPolicy, space: Space
) -> tuple[Space, Callable[[Observation], Observation]]:
    """Return what a policy sees of observations, without masks that it was not trained with.

    Args:
        policy: The policy.
        space: Observation space of the environment.

    Returns:
        The space that the policy sees, and a function from observations of a batch to it.
    """
    if mask_size(policy.spaces[0]) or not mask_size(space):
        return space, lambda observation: observation
    inner = without_mask(space)
    assert isinstance(inner, spaces.Dict)
    if not isinstance(policy.spaces[0], spaces.Dict) and list(inner) == [OBSERVATION_KEY]:
        return inner[OBSERVATION_KEY], lambda observation: observation[OBSERVATION_KEY]
    return inner, lambda observation: {key: observation[key] for key in inner}


def _start_of_episodes(policy: Policy, deterministic: bool, seed: int) -> Callable[[], Actor]:
    """Return a function that starts an episode: it returns one from observations to actions."""
    if isinstance(policy, SavedPolicy):
        rng = np.random.default_rng(seed)
        return lambda: policy.episode(deterministic, rng)
    if isinstance(policy, Predictor):
        return lambda: functools.partial(policy.predict, deterministic=deterministic)
    if not callable(policy):
        raise TypeError(
            "policy must be a TRPO, a SavedPolicy, an object with a predict method or a function,"
            f" got {type(policy).__name__}; open a folder with SavedPolicy.load(path)"
        )
    return lambda: policy


def _one_by_one(
    start: Callable[[], Actor],
    env: gymnasium.Env,
    episodes: int,
    callback: OnEvaluationStep | None,
    seed: int,
) -> Evaluation:
    """Play one episode after the other."""
    seeds = stream(seed, Purpose.EVALUATION).integers(2**31, size=episodes)
    returns, lengths, answer = [], [], None
    for episode in range(episodes):
        observation, _ = env.reset(seed=int(seeds[episode]))
        act, total, length, over = start(), 0.0, 0, False
        while not over and length < MAX_STEPS:
            action = act(observation)
            if isinstance(action, tuple) and not isinstance(env.action_space, spaces.Tuple):
                action = action[0]  # Stable-Baselines3 returns the state of the policy, too.
            observation, reward, terminated, truncated, _ = env.step(action)
            total, length = total + float(reward), length + 1
            over = bool(terminated or truncated)
            if callback is not None:
                flags = bool(terminated), bool(truncated)
                answer = callback(EvaluationStep(episode, observation, float(reward), *flags))
                over = over or answer is False
        returns.append(total)
        lengths.append(length)
        if answer is False:
            break
    return Evaluation(np.array(returns), np.array(lengths))
