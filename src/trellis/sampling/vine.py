"""Implements the vine sampler: several short rollouts from states along trunks (Sec. 5.2).

    trunk   s₀ ─ ● ─ ─ ─ ─ ● ─ ─        N states ●, chosen uniformly among those on the trunks
                 ├─ a₁ ~ ~               K actions a ~ q(·|s) in each state
                 └─ a₂ ~ ~               a short rollout after each action: Q̂ = Σ γᵗ r_t

Trunks are single paths that start from ρ₀ in every iteration. The (time, trunk) places of the
rollout set are chosen before the trunks are sampled, so only those states are captured. The number
of simulator steps includes both trunks and rollouts.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import Float, Int

from trellis.blas import one_blas_thread
from trellis.config import SamplingConfig
from trellis.inputs import gathered
from trellis.policies.normalizer import Normalizer
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.environment import Branching, Snapshot, StepResult
from trellis.sampling.proposals import choose_proposal, is_legal, propose
from trellis.sampling.rollouts import MAX_ENVS, Rollouts
from trellis.sampling.samples import Branches, PathState, Samples
from trellis.sampling.single_path import SinglePath
from trellis.spaces import Encoder, Observation


class TrunkSampler(Protocol):
    """Interface of what collects trunks."""

    def collect_trunks(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        place: Int[np.ndarray, "state 2"],
        iteration: int,
        /,
    ) -> tuple[Samples, Any]:
        """Collect the trunks of one iteration, and capture the states of the rollout set.

        Args:
            theta: Parameters of the policy.
            normalize: Function from encoded observations to the policy's inputs.
            place: (time, trunk) of the states to capture, in order of time.
            iteration: Index of the iteration, which selects the random streams.

        Returns:
            The samples, and the states in the form that the rollouts start from.
        """
        ...


class Trunks:
    """Collects trunks step by step.

    Args:
        env: Batch of environments.
        policy: The policy that acts.
        encode: Function from observations to features.
        sampling: Settings of the sampler.
        seed: Seed of the run.
        shard: Index of this sampler's shard.
    """

    def __init__(
        self,
        env: Branching,
        policy: Policy,
        encode: Encoder,
        sampling: SamplingConfig,
        *,
        seed: int,
        shard: int,
    ):
        self._recorder = _SnapshotRecorder(env)
        self._path = SinglePath(self._recorder, policy, encode, sampling, seed=seed, shard=shard)

    def collect_trunks(
        self,
        theta: np.ndarray,
        normalize: Normalizer,
        place: np.ndarray,
        iteration: int,
    ) -> tuple[Samples, Snapshot]:
        """Collect trunks and a snapshot of the states; see `TrunkSampler`."""
        self._recorder.schedule(place)
        samples, _ = self._path.collect(theta, normalize, None, iteration)
        return samples, self._recorder.captured()


class Vine:
    """Collects trunks in one batch of environments, and rollouts in another one.

    Args:
        env: Batch of environments for the trunks; the caller closes it.
        make_env: Creates the batch for the rollouts, which this class closes.
        policy: The policy that acts.
        encode: Function from observations to features.
        sampling: Settings of the sampler.
        gamma: Discount factor.
        seed: Seed of the run.
        shard: Index of this sampler's shard; together with the seed it selects the random streams.
    """

    trunks_kind: Callable[..., TrunkSampler] = Trunks
    """Class that collects the trunks."""
    rollouts_kind: Callable[..., Rollouts] = Rollouts
    """Class that runs the rollouts."""

    def __init__(
        self,
        env: Branching,
        make_env: Callable[[int], Branching],
        policy: Policy,
        encode: Encoder,
        sampling: SamplingConfig,
        *,
        gamma: float,
        seed: int = 0,
        shard: int = 0,
    ):
        settings, most = sampling.vine, env.most_rows or MAX_ENVS
        self.proposal, self.actions = choose_proposal(settings, policy.distribution)
        self._trunks = self.trunks_kind(env, policy, encode, sampling, seed=seed, shard=shard)
        self._rollouts = self.rollouts_kind(
            make_env, policy, encode, settings, self.actions, gamma, most
        )
        self._policy, self._settings, self._gamma = policy, settings, gamma
        self._seed, self._shard = seed, shard

    def collect(
        self,
        theta: Float[np.ndarray, " params"],
        normalize: Normalizer,
        state: PathState | None,
        iteration: int,
    ) -> tuple[Samples, None]:
        """Collect the trunks and branches of one iteration.

        Args:
            theta: Parameters of the policy.
            normalize: Function from encoded observations to the policy's inputs.
            state: Ignored, because every iteration starts new trunks.
            iteration: Index of the iteration, which selects the random streams.

        Returns:
            The samples, and None in place of a state for the next iteration.
        """
        del state
        place = self._rollout_set(iteration)
        trunks, captured = self._trunks.collect_trunks(theta, normalize, place, iteration)
        with one_blas_thread():
            branches = self._branch(theta, normalize, trunks, captured, place, iteration)
        return trunks._replace(branches=branches), None

    def _rollout_set(self, iteration: int) -> Int[np.ndarray, "state 2"]:
        """Choose N different (time, trunk) places, in order of time."""
        rng = stream(self._seed, Purpose.ROLLOUT_SET, iteration=iteration, shard=self._shard)
        trunks = self._settings.trunks
        visited = self._settings.trunk_length * trunks
        chosen = np.sort(rng.choice(visited, self._settings.states, replace=False))
        return np.stack(np.divmod(chosen, trunks), axis=1)

    def _branch(
        self,
        theta: np.ndarray,
        normalize: Normalizer,
        trunks: Samples,
        captured: Any,
        place: np.ndarray,
        iteration: int,
    ) -> Branches:
        """Run the rollouts from the captured states."""
        rng = stream(self._seed, Purpose.BRANCHES, iteration=iteration, shard=self._shard)
        at = tuple(place.T)
        carry = None if trunks.carries is None else trunks.carries.before[at]
        observation = gathered(trunks.observation[at])
        params, carry = self._policy.distribution_params(theta, observation, carry)
        shape = self.actions, len(place)
        action, log_q = propose(self.proposal, self._policy.distribution, params, shape, rng)
        legal = is_legal(self._policy.distribution, params, action)
        outcomes = self._rollouts.run(theta, normalize, captured, action, rng, carry, legal=legal)
        remaining = np.where(outcomes.terminated, 0.0, self._gamma**outcomes.length)
        final_observation = normalize(outcomes.final_observation)
        final_age = trunks.age[at] + outcomes.length
        values = action, log_q, outcomes.reward_sum, remaining, final_observation, final_age
        by_state = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1), (*values, outcomes.length))
        final_carry = outcomes.final_carry
        if final_carry is not None:
            final_carry = np.swapaxes(final_carry, 0, 1)
        branches = Branches(place, *by_state, legal=None if legal is None else legal.T)
        return branches._replace(final_carry=final_carry)

    def close(self) -> None:
        """Close the environments of the rollouts; those of the trunks belong to the caller."""
        self._rollouts.close()


class _SnapshotRecorder:
    """Batch that captures snapshots at scheduled places while a sampler steps it."""

    def __init__(self, env: Branching):
        self._env = env
        self.num_envs = env.num_envs

    def schedule(self, place: Int[np.ndarray, "state 2"]) -> None:
        """Schedule snapshots at (time, environment) places, in order of time; next step is 0."""
        self._time = 0
        self._due, self._ids = place.T
        self._captured: list[Snapshot] = []

    def captured(self) -> Snapshot:
        """Return the states of all scheduled places as one snapshot."""
        return {
            name: np.concatenate([part[name] for part in self._captured])
            for name in self._captured[0]
        }

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Observation:
        return self._env.reset(ids, seeds)

    def step(self, actions: np.ndarray) -> StepResult:
        first, last = np.searchsorted(self._due, [self._time, self._time + 1])
        if last > first:
            self._captured.append(self._env.snapshot(self._ids[first:last]))
        self._time += 1
        return self._env.step(actions)
