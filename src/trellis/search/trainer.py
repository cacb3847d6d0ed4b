"""Implements the loop of CEM and CMA: sample a generation, play it, move the distribution.

`SearchTrainer` has the interface of `Trainer`, so runs, agents and commands work with both. The
policy of a run is the mean of the distribution. The state also keeps the best member so far; its
return is biased upwards, because it was selected as the largest.
"""

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trellis.config import TrainConfig
from trellis.moments import Moments
from trellis.policies.networks import num_weights
from trellis.policies.policy import Policy
from trellis.policies.saved_layout import describe
from trellis.rng import Purpose, stream
from trellis.search.cem import CEM
from trellis.search.cma import CMA, default_population
from trellis.search.population import LocalPopulation, Population, parameter_scales, require_layers
from trellis.training.base import TrainerBase
from trellis.training.build import MakeEnv, Model, build_model, env_maker, why_inexact
from trellis.training.state import TrainState, from_arrays, to_arrays, with_prefix

FEWEST_MEMBERS = 40
"""Smallest default population of cem, with an elite of four."""
INITIAL_STD = {"cem": 1.0, "cma": 0.3}
"""Default of the initial standard deviation, by method."""


@dataclass(frozen=True)
class SearchState(TrainState):
    """State of a search between two generations; `theta` is the mean of the distribution."""

    search: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Record of the search, from which it continues."""
    best_member: np.ndarray | None = None
    """θ of the member with the highest fitness so far."""
    best_member_return: float = -np.inf
    """Fitness of that member."""
    best_member_moments: Moments | None = None
    """Observation statistics with which that member was played."""


MakePopulation = Callable[[TrainConfig, MakeEnv | None, Model, int], Population]
"""Function that creates a population from settings, `make_env`, model and episode length."""


class SearchTrainer(TrainerBase[SearchState]):
    """CEM or CMA for one configuration.

    Args:
        config: Settings of the run.
        make_env: Function that creates batches of the environment; by default from `config.env`.
        policy: Custom policy; by default the one that the settings describe.
        make_population: Function that creates the population; by default in this process.
    """

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        *,
        make_population: MakePopulation = LocalPopulation,
    ):
        env = (make_env or env_maker(config))(1)
        super().__init__(config, build_model(config, env, policy), make_env)
        length = config.search.path_length or env.max_episode_steps
        self.inexact = why_inexact(env, starts_new_episodes=True)
        env.close()
        require_layers(self.policy)
        if length is None:
            raise ValueError(
                f"{config.env} has no time limit, but {config.step.method} plays episodes to their"
                " end: set search.path_length"
            )
        self._initial = self.policy.init(stream(config.seed, Purpose.POLICY_INIT))
        # Without noise the log stds have no effect, so they are not searched.
        noisy = config.search.noisy_actions
        self._searched = self.policy.num_params if noisy else num_weights(self.policy.network)
        self._scales = parameter_scales(self.policy)[: self._searched]
        self._search = self._make_search(length)
        self._start = self._search.record()
        self._search_at: Mapping[str, np.ndarray] = self._start
        """Record from which `_search` would continue; any other record must be restored first."""
        self._population = make_population(config, make_env, self.model, length)

    def _make_search(self, length: int) -> CEM | CMA:
        """Return the search; its default population fits in the step budget of an iteration."""
        config, settings, n = self.config, self.config.search, self._searched
        std = settings.initial_std or INITIAL_STD[config.step.method]
        is_cem, shards = config.step.method == "cem", config.sampling.shards
        budget = config.sampling.batch_size // (settings.episodes * length)
        fewest = FEWEST_MEMBERS if is_cem else default_population(n)
        population = settings.population or max(fewest, budget)
        if population < shards:
            raise ValueError(
                f"a population of {population} cannot be divided into {shards} shards: set"
                " search.population to more, or shards to fewer"
            )
        return (CEM if is_cem else CMA)(np.zeros(n), std, population, settings, config.seed)

    def start(self) -> SearchState:
        """Return the state before the first generation."""
        return SearchState(
            theta=self._initial,
            critic={},
            observation_moments=Moments.zeros(self.model.moments_shape),
            return_moments=Moments.zeros(),
            discounted_return=np.zeros(0),
            path=None,
            search=self._start,
        )

    def iterate(self, state: SearchState) -> tuple[SearchState, dict[str, Any]]:
        """Run one generation and return the next state and its metrics."""
        self._restore_search(state)
        clock = [time.perf_counter()]
        thetas = self._whole(self._search.ask())
        clock.append(time.perf_counter())
        played = self._population.play(thetas, state.observation_moments, state.iteration)
        returns, lengths = np.concatenate(played.returns), np.concatenate(played.lengths)
        clock.append(time.perf_counter())
        fitness = returns.mean(axis=1)
        self._search.tell(fitness, progress=state.steps / self.config.total_steps)
        self._search_at = self._search.record()
        clock.append(time.perf_counter())

        moments = state.observation_moments
        if played.observations is not None:
            moments = moments.merge(played.observations)
        best = int(np.argmax(fitness))
        if fitness[best] > state.best_member_return:
            state = dataclasses.replace(
                state,
                best_member=thetas[best],
                best_member_return=float(fitness[best]),
                best_member_moments=state.observation_moments,
            )
        state = dataclasses.replace(
            state,
            theta=self._whole(self._search.mean[None])[0],
            search=self._search_at,
            observation_moments=moments,
            iteration=state.iteration + 1,
            steps=state.steps + int(lengths.sum()),
        )
        asking, sampling, telling = np.diff(clock).tolist()
        return state, {
            "iteration": state.iteration,
            "steps": state.steps,
            "reward_per_step": float(returns.sum() / lengths.sum()),
            "episodes": returns.size,
            "episode_return_mean": float(returns.mean()),
            "episode_return_std": float(returns.std()),
            "episode_length_mean": float(lengths.mean()),
            "population": len(fitness),
            "best_member_return": float(fitness[best]),
            "median_member_return": float(np.median(fitness)),
            "search_std": float(np.sqrt(np.mean(np.square(self._search.std)))),
            "status": "accepted",
            "seconds_sampling": sampling,
            "seconds_update": asking + telling,
            "steps_per_second": int(lengths.sum()) / (clock[-1] - clock[0]),
        }

    def _restore_search(self, state: SearchState) -> None:
        """Restore the search from the state, unless it is there already."""
        if self._search_at is state.search:
            return
        self._search.restore(dict(state.search))
        self._search_at = state.search
        if not np.array_equal(self._whole(self._search.mean[None])[0], state.theta):
            raise ValueError(
                f"replaying {self.config.step.method} until generation {state.iteration} does not"
                " lead to the policy in the checkpoint: resume with the version of cma that wrote"
                f" it (here: {importlib.metadata.version('cma')}), on the same CPU model"
            )

    def _whole(self, searched: np.ndarray) -> np.ndarray:
        """Return rows of θ, float32, from members of the search.

        A member is the difference from the initial θ, in units of each parameter's scale.
        Parameters that are not searched keep their initial values.
        """
        thetas = np.tile(self._initial, (len(searched), 1))
        thetas[:, : self._searched] += self._scales * searched
        return thetas

    def to_checkpoint(self, state: SearchState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return the state as named arrays and plain values."""
        arrays, values = to_arrays(state)
        arrays |= {f"search/{name}": value for name, value in state.search.items()}
        if state.best_member is not None and state.best_member_moments is not None:
            arrays["best_member"] = state.best_member
            arrays |= state.best_member_moments.to_arrays("best_member_moments")
        values["best_member_return"] = state.best_member_return
        return arrays, values | describe(self.model.spaces, self.policy)

    def from_checkpoint(
        self, arrays: dict[str, np.ndarray], values: Mapping[str, Any]
    ) -> SearchState:
        """Return the state of a checkpoint, and make the search continue from it."""
        self._require_same_make(arrays, values)
        common = from_arrays(arrays, values)
        self._warn_if_inexact("training continues")
        # The first checkpoints had a best member without the statistics to play it with.
        best: dict[str, Any] = {}
        if "best_member_moments/count" in arrays:
            best = {
                "best_member": arrays["best_member"],
                "best_member_return": float(values["best_member_return"]),
                "best_member_moments": Moments.from_arrays("best_member_moments", arrays),
            }
        state = SearchState(**vars(common), search=with_prefix("search/", arrays), **best)
        self._restore_search(state)
        return state

    def close(self) -> None:
        """Close all environments and release all workers."""
        self._population.close()
        super().close()
