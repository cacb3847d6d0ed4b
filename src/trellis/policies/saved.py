"""`SavedPolicy`: θ with everything it takes to act, and nothing else.

    policy = SavedPolicy.load("runs/hopper")
    action = policy.act(observation)

Opening one builds no environment and needs no simulator: network, distribution, observation
statistics and spaces come from the run folder, which is only parsed.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.checkpoint_format import CHECKPOINTS, Checkpoint, CheckpointError, load_latest
from trellis.config import CONFIG_FILE, TrainConfig, load_config
from trellis.moments import Moments
from trellis.policies.build import build_policy
from trellis.policies.normalizer import Normalizer, make_normalizer
from trellis.policies.policy import Policy
from trellis.space_json import SpaceFormatError, space_from_json, space_from_text, space_to_json
from trellis.spaces import (
    ActionMap,
    Encoder,
    Observation,
    Spaces,
    add_batch_axis,
    is_single,
    observation_encoder,
)

Actor = Callable[[Observation], np.ndarray]
"""A function from a batch of observations to actions for `BatchEnv.step`."""


@dataclass(frozen=True)
class SavedPolicy:
    """A policy that can act."""

    policy: Policy
    """Network and distribution."""
    theta: np.ndarray
    """Parameters of the policy."""
    observation_moments: Moments
    """Statistics that observations are standardized with."""
    spaces: Spaces
    """Observation space and action space of the environment it was trained in."""
    config: TrainConfig
    """Settings of the run it comes from."""
    iteration: int = 0
    """Iterations of training behind it."""
    steps: int = 0
    """Simulator steps of training behind it."""
    is_best: bool = False
    """Whether it is the policy with the best evaluation, rather than the last one."""

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        best: bool = False,
        policy: Policy | None = None,
        spaces: Spaces | None = None,
    ) -> "SavedPolicy":
        """Open the policy of a training run or of a saved agent.

        Args:
            folder: a folder that `trellis train` or `TRPO.save` has written.
            best: take the policy with the best evaluation, if there was one, instead of the last.
            policy: the policy description, if it was one of your own.
            spaces: observation and action space, if the checkpoint does not describe them.
        """
        config, checkpoint = read_agent(folder)
        return cls.from_checkpoint(checkpoint, config, best=best, policy=policy, spaces=spaces)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        config: TrainConfig,
        *,
        best: bool = False,
        policy: Policy | None = None,
        spaces: Spaces | None = None,
    ) -> "SavedPolicy":
        """Return the policy in a checkpoint that was loaded already; arguments as in `load`."""
        arrays, values = checkpoint.arrays, checkpoint.values
        spaces = spaces or read_spaces(values, config.env)
        policy = policy or build_policy(config.policy, *spaces)
        require_same_policy(values, arrays["theta"].size, policy)
        best = best and "best_theta" in arrays
        return cls(
            policy,
            arrays["best_theta" if best else "theta"],
            Moments.from_arrays("best_moments" if best else "observation_moments", arrays),
            spaces,
            config,
            iteration=int(values["iteration"]),
            steps=int(values["steps"]),
            is_best=best,
        )

    def act(
        self,
        observation: Any,
        deterministic: bool | None = None,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """Return the action for one observation, or a row for each of a batch.

        Actions are in the environment's own terms, ready for `gymnasium.Env.step`.

        Args:
            observation: as the environment returns it.
            deterministic: True for the most probable action, False to sample one; by default as
                the run's evaluations do it.
            rng: where the noise of sampled actions comes from.
        """
        single = is_single(observation, self.spaces[0])
        batch = add_batch_axis(observation) if single else observation
        stochastic = None if deterministic is None else not deterministic
        actions = self._action_map(self.actor(rng, stochastic=stochastic)(batch))
        return actions[0] if single else actions

    def actor(
        self, rng: np.random.Generator | None = None, *, stochastic: bool | None = None
    ) -> Actor:
        """Return a function from batches of observations to actions for `BatchEnv.step`.

        Args:
            rng: where the noise of sampled actions comes from.
            stochastic: whether to sample actions; by default as the run's evaluations do it.
        """
        stochastic = self.config.eval_drawn if stochastic is None else stochastic
        rng = rng or self._rng
        distribution = self.policy.distribution

        def act(observation: Observation) -> np.ndarray:
            features = self._normalize(self._encode(observation))
            params, _ = self.policy.distribution_params(self.theta, features)
            if not stochastic:
                return distribution.mode(params)
            return distribution.sample(params, distribution.noise(rng, (len(features),)))

        return act

    @functools.cached_property
    def _encode(self) -> Encoder:
        return observation_encoder(self.spaces[0])[1]

    @functools.cached_property
    def _normalize(self) -> Normalizer:
        enabled = self.config.estimation.normalize_observations
        return make_normalizer(self.observation_moments, enabled=enabled)

    @functools.cached_property
    def _action_map(self) -> ActionMap:
        return ActionMap(self.spaces[1])

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.config.seed)


def read_agent(folder: str | Path) -> tuple[TrainConfig, Checkpoint]:
    """Read the settings and the newest checkpoint of a run or of a saved agent."""
    folder = Path(folder)
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"{folder} is not a run or a saved agent: it has no {CONFIG_FILE}")
    return load_config(folder / CONFIG_FILE), load_latest(folder / CHECKPOINTS)


def describe(spaces: Spaces, policy: Policy) -> dict[str, Any]:
    """Return what a checkpoint says about its environment and about what θ parametrizes."""
    observation_space, action_space = spaces
    texts = {"observation space": str(observation_space), "action space": str(action_space)}
    return {
        "spaces": texts,
        "observation_space": space_to_json(observation_space),
        "action_space": space_to_json(action_space),
        "policy": _kind(policy),
    }


def read_spaces(values: Mapping[str, Any], env_id: str) -> Spaces:
    """Return the spaces that a checkpoint describes, in today's format or in the first one."""
    try:
        observation, action = values.get("observation_space"), values.get("action_space")
        if observation and action:
            return space_from_json(observation), space_from_json(action)
        texts = values["spaces"]
        observation_space = space_from_text(texts["observation space"], bounds_matter=False)
        return observation_space, space_from_text(texts["action space"])
    except (SpaceFormatError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"this checkpoint does not describe the spaces of {env_id} ({error}): pass them as"
            " SavedPolicy.load(path, spaces=(observation_space, action_space))"
        ) from error


def require_same_policy(values: Mapping[str, Any], num_params: int, policy: Policy) -> None:
    """Raise a ValueError if a checkpoint's θ does not belong to this policy."""
    ours = _kind(policy)
    saved = values.get("policy", ours)  # The first checkpoints did not describe the policy.
    if saved != ours or num_params != policy.num_params:
        raise ValueError(
            f"this checkpoint holds a policy of {num_params} parameters ({saved}), the policy here"
            f" has {policy.num_params} ({ours}): pass the one that it was trained with, from"
            " Python, as TRPO.load(path, policy=…)"
        )


def _kind(policy: Policy) -> str:
    """Return the kinds of network and distribution, and the shapes of the weights."""
    shapes = " ".join("×".join(map(str, shape)) for shape in policy.network.shapes)
    return f"{type(policy.network).__qualname__} {shapes}, {type(policy.distribution).__qualname__}"
