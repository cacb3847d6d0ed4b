"""Implements CMA-ES (Hansen & Ostermeier, 1996; Sec. 8.1) with pycma.

A full covariance matrix has n² numbers to learn, which is practical for few parameters. The
diagonal variant (sep-CMA-ES; Ros & Hansen, 2008) learns n numbers at a higher rate.

The state of pycma's object is large and internal, and a pickle of it would run code when loaded.
The object is a function of the seed and of the fitness that it was told. `record` therefore returns
the fitness, and `restore` replays all calls, which leads to the same state bit for bit.
"""

import math
from typing import Any

import numpy as np

from trellis.blas import one_blas_thread
from trellis.config import SearchConfig
from trellis.rng import Purpose, stream


def default_population(parameters: int) -> int:
    """Return pycma's default population for n parameters, 4 + 3 ln n."""
    return 4 + int(3 * math.log(parameters))


class CMA:
    """CMA-ES: `ask` for a generation, `tell` the fitness of its members.

    Args:
        mean: Initial mean, (parameters,).
        std: Initial standard deviation σ₀ of every parameter.
        population: Number of members of a generation.
        settings: Largest number of parameters with a full covariance matrix.
        seed: Seed of the run.
    """

    def __init__(
        self, mean: np.ndarray, std: float, population: int, settings: SearchConfig, seed: int = 0
    ):
        if population < 3:
            raise ValueError(f"CMA needs a population of 3 or more, got {population}")
        self.population, self._seed = population, seed
        self._start, self._std = np.array(mean, np.float64), float(std)
        self._diagonal = self._start.size > settings.full_covariance_params
        self._begin()

    def _begin(self) -> None:
        import cma  # Imports matplotlib, which takes a second.

        options = {
            "popsize": self.population,
            "CMA_diagonal": self._diagonal,
            "randn": self._randn,
            "seed": math.nan,  # Otherwise pycma seeds NumPy's global generator.
            "verbose": -10,  # Prints nothing and reads no file of options.
            "verb_log": 0,
        }
        self._fitness = np.zeros((0, self.population))
        with one_blas_thread():
            self._strategy: Any = cma.CMAEvolutionStrategy(self._start, self._std, options)
        self._asked: list[np.ndarray] | None = None

    def _randn(self, *shape: int) -> np.ndarray:
        """Return standard normals from the stream of this generation; pycma calls it."""
        return self._rng.standard_normal(shape)

    @property
    def generation(self) -> int:
        """Number of generations so far."""
        return len(self._fitness)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the distribution, (parameters,)."""
        return np.array(self._strategy.mean)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each parameter."""
        return np.array(self._strategy.stds)

    def ask(self) -> np.ndarray:
        """Sample the members of this generation, (population, parameters)."""
        self._rng = stream(self._seed, Purpose.SEARCH, iteration=self.generation)
        # The bits of matrix products depend on the number of threads, and a replay needs the same.
        with one_blas_thread():
            self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, fitness: np.ndarray, progress: float = 0.0) -> None:
        """Move the distribution by the ranking of the last generation.

        Args:
            fitness: Fitness of every member; larger is better.
            progress: Part of the run before this generation, which CMA ignores.
        """
        del progress
        if self._asked is None:
            raise RuntimeError("tell must be called after ask, once for each generation")
        fitness = np.asarray(fitness, np.float64)
        with one_blas_thread():
            self._strategy.tell(self._asked, (-fitness).tolist())  # pycma minimizes.
        self._fitness = np.concatenate([self._fitness, fitness[None]])
        self._asked = None

    def record(self) -> dict[str, np.ndarray]:
        """Return the fitness of all generations, (generations, population)."""
        return {"fitness": self._fitness}

    def restore(self, record: dict[str, np.ndarray]) -> None:
        """Continue from the result of `record`, by replaying all calls of ask and tell."""
        self._begin()
        for fitness in record["fitness"]:
            self.ask()
            self.tell(fitness)
