"""The loop of the search methods: draw a generation of θ, play it, move the distribution.

It has the surface of `Trainer`, so that runs, agents and commands need not know
which of the two they have. The policy of a run is the mean of the distribution; the best member
that was ever seen is kept beside it, with a return that is flattered by having been the best.
"""

import dataclasses
import importlib.metadata
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trellis.config import TrainConfig
from trellis.envs.spaces import moments_shape, observation_encoder
from trellis.estimation.normalization import Moments, no_moments
from trellis.policies.networks import num_weights
from trellis.policies.policy import Policy
from trellis.rng import Purpose, stream
from trellis.search.cem import CEM
from trellis.search.cma import CMA, default_population
from trellis.search.population import parameter_scales, require_layers
from trellis.search.shard import Generation
from trellis.training import state as run_state
from trellis.training.build import MakeEnv, env_from_catalog, fit_policy
from trellis.training.evaluation import Evaluator, Player
from trellis.training.shard import normalizer
from trellis.training.state import Evaluation, TrainState
from trellis.training.team import LocalTeam, MakeTeam, Team

FEWEST_MEMBERS = 40
"""In a generation of cem, unless the settings say otherwise: an elite of four."""
INITIAL_STD = {"cem": 1.0, "cma": 0.3}
"""Unless the settings say otherwise."""


@dataclass(frozen=True)
class SearchState(TrainState):
    """Between two generations; `theta` is the mean of the distribution."""

    search: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The record of the search, from which it can be taken up."""
    best_member: np.ndarray | None = None
    """θ of the member with the highest fitness so far."""
    best_member_return: float = -np.inf
    best_member_moments: Moments | None = None
    """Observation statistics that it was played with."""


class SearchTrainer:
    """CEM or CMA for one configuration; arguments as those of `Trainer`."""

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        *,
        make_team: MakeTeam = LocalTeam,
    ):
        self.config = config
        self._make_env = make_env or env_from_catalog(config)
        self.env = self._make_env(1)
        features, self.encode = observation_encoder(self.env.observation_space)
        self.policy = fit_policy(policy, config, features, self.env)
        self._features = features
        require_layers(self.policy)
        self._initial = self.policy.init(stream(config.seed, Purpose.POLICY_INIT))
        # Without noise the log stds change nothing: they stay where they are.
        noisy = config.search.noisy_actions
        self._searched = self.policy.num_params if noisy else num_weights(self.policy.network)
        self._scales = parameter_scales(self.policy)[: self._searched]
        self._path_length = self._find_path_length()
        self._search = self._make_search()
        self._standing: Mapping[str, np.ndarray] | None = None
        """The record that `_search` stands at; another one has to be restored first."""
        self._require_members()
        self._team: Team = make_team(config, make_env, self.policy)
        self._evaluator = Evaluator(
            self._make_env, self.policy, self.encode, config.seed, drawn=config.eval_drawn
        )

    def _find_path_length(self) -> int:
        length = self.config.search.path_length or self.env.max_episode_steps
        if length is None:
            self.env.close()
            raise ValueError(
                f"{self.config.env} has no time limit, and {self.config.step.method} plays episodes"
                " to their end: set path_length in the settings of the search"
            )
        return length

    def _require_members(self) -> None:
        population, shards = self._search.population, self.config.sampling.shards
        if population < shards:
            self.env.close()
            raise ValueError(
                f"a population of {population} cannot be divided into {shards} shards: set search"
                " population to more, or shards to fewer"
            )

    def _make_search(self) -> CEM | CMA:
        config, settings, n = self.config, self.config.search, self._searched
        start, std = np.zeros(n), settings.initial_std or INITIAL_STD[config.step.method]
        is_cem = config.step.method == "cem"
        budget = config.sampling.batch_size // (settings.episodes * self._path_length)
        fewest = FEWEST_MEMBERS if is_cem else default_population(n)
        population = settings.population or max(fewest, budget)
        if is_cem:
            return CEM(
                start,
                std,
                population=population,
                elite_fraction=settings.elite_fraction,
                extra_variance=settings.extra_variance,
                noise_generations=settings.noise_generations,
                seed=config.seed,
            )
        diagonal = n > settings.full_covariance_params
        return CMA(start, std, population=population, diagonal=diagonal, seed=config.seed)

    def start(self) -> SearchState:
        """Before the first generation."""
        return SearchState(
            theta=self._initial,
            critic={},
            observation_moments=no_moments(moments_shape(self._features)),
            return_moments=no_moments(()),
            discounted_return=np.zeros(0),
            path=None,
            search=self._make_search().record(),
        )

    def iterate(self, state: SearchState) -> tuple[SearchState, dict[str, Any]]:
        """One generation: the next state, and what happened in it."""
        self._take_up(state)
        clock = [time.perf_counter()]
        thetas = self._whole(self._search.ask())
        clock.append(time.perf_counter())
        played: Generation = self._team.ask(
            "play", thetas, state.observation_moments, state.iteration
        )
        returns, lengths = np.concatenate(played.returns), np.concatenate(played.lengths)
        clock.append(time.perf_counter())
        fitness = returns.mean(axis=1)
        self._search.tell(fitness)
        self._standing = self._search.record()
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
            search=self._standing,
            observation_moments=moments,
            iteration=state.iteration + 1,
            steps=state.steps + int(lengths.sum()),
        )
        asking, sampling, telling = np.diff(clock).tolist()
        return state, {
            "iteration": state.iteration,
            "steps": state.steps,
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

    def _take_up(self, state: SearchState) -> None:
        """Puts the search where the state says, unless it stands there already."""
        if self._standing is state.search:
            return
        self._search.restore(dict(state.search))
        self._standing = state.search
        if not np.array_equal(self._whole(self._search.mean[None])[0], state.theta):
            raise ValueError(
                f"what {self.config.step.method} recorded until generation {state.iteration} does"
                " not lead to the policy that was saved with it: go on with the version of cma"
                f" that wrote it (here: {importlib.metadata.version('cma')}), on the same kind of"
                " machine"
            )

    def _whole(self, searched: np.ndarray) -> np.ndarray:
        """Rows of θ, float32, from what was searched for in their place: the distance from the
        initial θ in units of each parameter's scale. The rest of θ stays as it was."""
        thetas = np.tile(self._initial, (len(searched), 1))
        thetas[:, : self._searched] += self._scales * searched
        return thetas

    def normalizer(self, moments: Moments) -> Callable[[np.ndarray], np.ndarray]:
        """What the policy's observations go through before it sees them."""
        return normalizer(self.config, moments)

    def evaluate(self, state: TrainState, episodes: int, *, best: bool = False) -> Evaluation:
        """Episodes on environments of their own, from fixed seeds."""
        theta, moments = state.chosen(best=best)
        return self._evaluator.evaluate(theta, self.normalizer(moments), episodes)

    def player(self, state: TrainState, rng: np.random.Generator, *, best: bool = False) -> Player:
        """From what is seen to actions, as in evaluations."""
        theta, moments = state.chosen(best=best)
        return self._evaluator.player(theta, self.normalizer(moments), rng)

    def freeze(self, state: SearchState) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """The state as named arrays and plain values."""
        arrays, values = run_state.freeze(state)
        arrays |= {f"search/{name}": value for name, value in state.search.items()}
        if state.best_member is not None and state.best_member_moments is not None:
            arrays["best_member"] = state.best_member
            arrays |= run_state.moments_to_arrays("best_member_moments", state.best_member_moments)
        values["best_member_return"] = state.best_member_return
        values |= run_state.made_for(self.env, self.policy)
        return arrays, values

    def thaw(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> SearchState:
        """The state back again. The search itself follows when the next generation is due."""
        run_state.require_same_make(values, arrays["theta"], self.env, self.policy, self.config.env)
        common = run_state.thaw(arrays, values)
        search = {k.removeprefix("search/"): v for k, v in arrays.items() if k.startswith("search")}
        # A member without the statistics that it was played with, as the first checkpoints had it,
        # cannot be played again.
        has_best = "best_member_moments/count" in arrays
        return SearchState(
            **{f.name: getattr(common, f.name) for f in dataclasses.fields(common)},
            search=search,
            best_member=arrays["best_member"] if has_best else None,
            best_member_return=float(values["best_member_return"]) if has_best else -np.inf,
            best_member_moments=run_state.moments_from_arrays("best_member_moments", arrays)
            if has_best
            else None,
        )

    def close(self) -> None:
        """Lets go of the environments, and of the workers that played the population."""
        self._team.close()
        self._evaluator.close()
        self.env.close()
