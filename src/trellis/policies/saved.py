"""`SavedPolicy`: θ with everything it takes to act, and nothing else.

    policy = SavedPolicy.load("runs/hopper")
    action = policy.act(observation)

Loading builds no environment and imports no simulator: network, distribution, observation
statistics and spaces come from the run folder, which is only parsed. Nobody has to vouch for that
folder: every array is checked for its name, type, shape and range before it is used.
"""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trellis.actions import ActionMap
from trellis.checkpoint_format import Checkpoint, Header, require_values
from trellis.config import TrainConfig
from trellis.moments import Moments
from trellis.policies.acting import HAS_MEMORY, BatchActor, require_carry
from trellis.policies.normalizer import Normalizer, make_normalizer
from trellis.policies.policy import Policy
from trellis.policies.pretrained import pretrained_folder
from trellis.policies.saved_agent import read_agent
from trellis.policies.saved_layout import read_count, read_layout, specs_of
from trellis.policies.saved_masks import require_legal, with_mask
from trellis.space_json import same_layout
from trellis.spaces import (
    Encoder,
    Observation,
    Spaces,
    add_batch_axis,
    count_rows,
    is_single,
    observation_encoder,
    row_of,
)
from trellis.strict_json import shown

Actor = Callable[[Observation], np.ndarray]
"""A function from a batch of observations to actions for `BatchEnv.step`."""


@dataclass(frozen=True)
class SavedPolicy:
    """A trained policy, read from a run folder or a saved agent, that acts without an environment.

    Example:
        >>> policy = SavedPolicy.load("runs/Hopper-v5-0", best=True)  # doctest: +SKIP
        >>> action = policy.act(observation, deterministic=True)  # doctest: +SKIP
    """

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

        def check(config: TrainConfig, header: Header) -> Collection[str]:
            expected = read_layout(header, config, policy, spaces).expected
            return [name for name in expected if best or not name.startswith("best_")]

        config, checkpoint = read_agent(folder, check)
        return cls.from_checkpoint(checkpoint, config, best=best, policy=policy, spaces=spaces)

    @classmethod
    def pretrained(cls, env_id: str) -> "SavedPolicy":
        """Open the trained policy that comes with Trellis for an environment.

        Args:
            env_id: Gymnasium id, such as Hopper-v5. `trellis pretrained` lists all.

        Raises:
            ValueError: There is no such policy.
        """
        return cls.load(pretrained_folder(env_id))

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
        layout = read_layout(Header(specs_of(arrays), values, None), config, policy, spaces)
        for name, expected in layout.expected.items():
            if name in arrays:
                require_values(name, arrays[name], expected)
        best = best and "best_theta" in arrays
        # Earlier checkpoints have the counts of the last policy alone.
        which = "best_" if best and "best_steps" in values else ""
        return cls(
            layout.policy,
            arrays["best_theta" if best else "theta"],
            Moments.from_arrays("best_moments" if best else "observation_moments", arrays),
            layout.spaces,
            config,
            iteration=read_count(values, f"{which}iteration"),
            steps=read_count(values, f"{which}steps"),
            is_best=best,
        )

    def act(
        self,
        observation: Any,
        deterministic: bool | None = None,
        rng: np.random.Generator | None = None,
        *,
        action_mask: Any = None,
        carry: np.ndarray | None = None,
    ) -> Any:
        """Return the action for one observation, or a row for each of a batch.

        Actions are in the environment's own terms, ready for `gymnasium.Env.step`. A policy with
        memory needs `carry`; `episode` keeps it for you.

        Args:
            observation: as the environment returns it.
            deterministic: True for the most probable action, False to sample one; by default as
                the run's evaluations do it.
            rng: where the noise of sampled actions comes from.
            action_mask: which actions are legal, if the environment has masks that are not a part
                of its observations; for a batch, one row per observation.
            carry: what the policy remembers: `initial_carry()` at the start of an episode, then
                what the last call returned. With it, the result is a pair (action, carry).
        """
        if carry is None and self.policy.carry_size:
            raise ValueError(HAS_MEMORY)
        if carry is not None:
            carry = np.asarray(carry, np.float32)
        action, new = self._act(observation, deterministic, rng, carry, action_mask)
        return action if carry is None else (action, new)

    def episode(
        self, deterministic: bool | None = None, rng: np.random.Generator | None = None
    ) -> Callable[..., Any]:
        """Return a function that acts in one episode and remembers what it has seen.

            act = policy.episode()      # when an episode starts
            action = act(observation)   # in every step

        It works for every policy, with memory or without. A batch of observations is a batch of
        episodes that start together. As in `act`, a mask that is not a part of the observations is
        passed along: `act(observation, action_mask=mask)`.

        Args:
            deterministic: as in `act`.
            rng: as in `act`.
        """
        carry: np.ndarray | None = None

        def act(observation: Any, *, action_mask: Any = None) -> Any:
            nonlocal carry
            action, carry = self._act(observation, deterministic, rng, carry, action_mask)
            return action

        return act

    def initial_carry(self, episodes: int | None = None) -> np.ndarray:
        """Return the carry at the start of an episode, or of several; empty without memory."""
        size = self.policy.carry_size
        return np.zeros(size if episodes is None else (episodes, size), np.float32)

    def _act(
        self,
        observation: Any,
        deterministic: bool | None,
        rng: np.random.Generator | None,
        carry: np.ndarray | None,
        action_mask: Any = None,
    ) -> tuple[Any, np.ndarray | None]:
        """Return the action and the next carry; None as a carry starts an episode."""
        actor = self.actor(rng, stochastic=None if deterministic is None else not deterministic)
        try:
            observation = with_mask(observation, action_mask, self.spaces)
            single = is_single(observation, self.spaces[0])
            batch = add_batch_axis(observation) if single else observation
            require_legal(batch, self.spaces)
            if carry is not None:
                fresh = self.initial_carry(None if single else count_rows(batch))
                require_carry(carry, fresh.shape)
                actor.carry = carry[None] if single else carry
            actions = self._action_map(actor(batch))
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"the policy cannot act on this observation ({error}); its space is"
                f" {shown(str(self.spaces[0]), quotes=False)}"
            ) from error
        if not single:
            return actions, actor.carry
        return row_of(actions, 0), None if actor.carry is None else actor.carry[0]

    def actor(
        self, rng: np.random.Generator | None = None, *, stochastic: bool | None = None
    ) -> BatchActor:
        """Return a function from batches of observations to actions for `BatchEnv.step`.

        That of a policy with memory remembers what it has seen: for new episodes, ask for a new
        function or call its `start_episodes`.

        Args:
            rng: where the noise of sampled actions comes from.
            stochastic: whether to sample actions; by default as the run's evaluations do it.
        """
        stochastic = self.config.eval_drawn if stochastic is None else stochastic
        return BatchActor(
            self.policy,
            self.theta,
            lambda observation: self.normalizer(self._encode(observation)),
            rng or self._rng,
            stochastic,
        )

    def require_spaces(self, spaces: Spaces, env_id: str) -> None:
        """Raise a ValueError if an environment does not have the spaces of this policy."""
        for name, ours, theirs in zip(
            ("observations", "actions"), self.spaces, spaces, strict=True
        ):
            if not same_layout(ours, theirs):
                raise ValueError(
                    f"the policy does not fit the {name} of {env_id}: they are"
                    f" {shown(str(theirs), quotes=False)}, those of the policy are"
                    f" {shown(str(ours), quotes=False)}"
                )

    @functools.cached_property
    def _encode(self) -> Encoder:
        return observation_encoder(self.spaces[0], self.config.policy.pictures)[1]

    @functools.cached_property
    def normalizer(self) -> Normalizer:
        """Function from encoded observations to the inputs of the network."""
        enabled = self.config.estimation.normalize_observations
        return make_normalizer(self.observation_moments, enabled=enabled)

    @functools.cached_property
    def _action_map(self) -> ActionMap:
        return ActionMap(self.spaces[1])

    @functools.cached_property
    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.config.seed)
