"""Vine (Sec. 5.2): trunks from ρ₀, a rollout set of states on them, several rollouts from each.

    trunk   s₀ ─ ● ─ ─ ─ ─ ● ─ ─        N states ● of all that the trunks visit, uniformly
                 ├─ a₁ ~ ~               K actions a ~ q(·|s) in each
                 └─ a₂ ~ ~               a short rollout after each: Q̂ = Σ γᵗ r_t

Trunks are single paths that start anew in every iteration. Which of their (time, trunk) places
will branch is drawn beforehand, so that only those states are taken down on the way. Simulator
steps are those of the trunks and those of the rollouts.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trellis.blas import one_blas_thread
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.sampling.proposals import choose_proposal, propose
from trellis.sampling.rollouts import MOST_ROWS, Branching, Rollouts
from trellis.sampling.samples import Branches, Observation, Samples
from trellis.sampling.single_path import SinglePath


class Vine:
    """Grows trunks in `env`, and their branches in a batch that it makes and closes itself."""

    def __init__(
        self,
        env: Branching,
        make_env: Callable[[int], Branching],
        policy: Policy,
        encode: Callable[[Observation], np.ndarray],
        *,
        trunk_length: int,
        states: int,
        actions: int,
        rollout_length: int,
        gamma: float,
        proposal: str = "auto",
        common_random_numbers: bool = True,
        seed: int = 0,
        shard: int = 0,
    ):
        self.proposal, self.actions = choose_proposal(proposal, policy.distribution, actions)
        self._trunks = _Watched(env)
        self._single_path = SinglePath(
            self._trunks,
            policy,
            encode,
            steps=trunk_length,
            whole_paths=True,
            seed=seed,
            shard=shard,
        )
        self._rollouts = Rollouts(
            make_env,
            policy,
            encode,
            states=states,
            actions=self.actions,
            length=rollout_length,
            gamma=gamma,
            common_random_numbers=common_random_numbers,
            most_rows=getattr(env, "most_rows", None) or MOST_ROWS,
        )
        self._policy, self._gamma = policy, gamma
        self._trunk_length, self._states = trunk_length, states
        self._seed, self._shard = seed, shard

    def collect(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        state: object,
        iteration: int,
    ) -> tuple[Samples, None]:
        """One iteration's trunks and branches; nothing of them goes on into the next."""
        del state
        place = self._rollout_set(iteration)
        self._trunks.watch(place)
        trunks, _ = self._single_path.collect(theta, normalize, None, iteration)
        with one_blas_thread():
            branches = self._branch(theta, normalize, trunks, place, iteration)
        return trunks._replace(branches=branches), None

    def _rollout_set(self, iteration: int) -> np.ndarray:
        """N different places of the (time, trunk) grid, in order of time."""
        rng = stream(self._seed, Purpose.ROLLOUT_SET, iteration=iteration, shard=self._shard)
        trunks = self._trunks.num_envs
        visited = self._trunk_length * trunks
        chosen = np.sort(rng.choice(visited, self._states, replace=False))
        return np.stack(np.divmod(chosen, trunks), axis=1)

    def _branch(
        self,
        theta: np.ndarray,
        normalize: Callable[[np.ndarray], np.ndarray],
        trunks: Samples,
        place: np.ndarray,
        iteration: int,
    ) -> Branches:
        rng = stream(self._seed, Purpose.BRANCHES, iteration=iteration, shard=self._shard)
        at = tuple(place.T)
        params, _ = self._policy.distribution_params(theta, np.asarray(trunks.observation[at]))
        shape = self.actions, len(place)
        action, log_q = propose(self.proposal, self._policy.distribution, params, shape, rng)
        outcomes = self._rollouts.run(theta, normalize, self._trunks.rows(), action, rng)
        remaining = np.where(outcomes.terminated, 0.0, self._gamma**outcomes.length)
        by_state = (
            np.swapaxes(values, 0, 1)
            for values in (
                action,
                log_q,
                outcomes.reward_sum,
                remaining,
                normalize(outcomes.final_observation),
                trunks.age[at] + outcomes.length,
                outcomes.length,
            )
        )
        return Branches(place, *by_state)

    def close(self) -> None:
        """Lets go of the environments in which branches grow; the trunks' belong to the caller."""
        self._rollouts.close()


class _Watched:
    """A batch that takes snapshots at given places while somebody else steps it."""

    def __init__(self, env: Branching):
        self._env = env
        self.num_envs = env.num_envs

    def watch(self, place: np.ndarray) -> None:
        """From now on: time 0 is the next step. Places are (time, environment), by time."""
        self._time = 0
        self._due, self._ids = place.T
        self._taken: list[Mapping[str, np.ndarray]] = []

    def rows(self) -> dict[str, np.ndarray]:
        """What was taken, a row per place."""
        return {
            name: np.concatenate([rows[name] for rows in self._taken]) for name in self._taken[0]
        }

    def reset(self, ids: np.ndarray, seeds: np.ndarray) -> Observation:
        return self._env.reset(ids, seeds)

    def step(self, actions: np.ndarray) -> Any:
        first, last = np.searchsorted(self._due, [self._time, self._time + 1])
        if last > first:
            self._taken.append(self._env.snapshot(self._ids[first:last]))
        self._time += 1
        return self._env.step(actions)
