"""CMA-ES (Hansen & Ostermeier, 1996) by pycma, a baseline of Sec. 8.1.

A full covariance matrix has n² numbers to learn: worth it for few parameters. For many, the
diagonal variant (sep-CMA-ES; Ros & Hansen, 2008) learns n of them, at a rate that is the higher.

pycma's object holds more state than anyone should copy out of it, and a pickle runs code when it is
read. But what it does is a function of the seed and of the fitness that it was told: that is what
is recorded, and replaying ask and tell leads to the same state, bit for bit.
"""

import math
from typing import Any

import numpy as np

from trellis.blas import one_blas_thread
from trellis.config import SearchConfig
from trellis.rng import Purpose, stream


def default_population(parameters: int) -> int:
    """Return pycma's own default, 4 + 3 ln n."""
    return 4 + int(3 * math.log(parameters))


class CMA:
    """`ask` for a generation, `tell` what its members are worth; more is better."""

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
        import cma  # Loads matplotlib, which takes a second.

        options = {
            "popsize": self.population,
            "CMA_diagonal": self._diagonal,
            "randn": self._randn,
            "seed": math.nan,  # Else pycma seeds NumPy's global generator.
            "verbose": -10,  # Silent, and without reading a file of options.
            "verb_log": 0,
        }
        self._fitness = np.zeros((0, self.population))
        with one_blas_thread():
            self._strategy: Any = cma.CMAEvolutionStrategy(self._start, self._std, options)
        self._asked: list[np.ndarray] | None = None

    def _randn(self, *shape: int) -> np.ndarray:
        """Return standard normals for pycma, from the stream of this generation."""
        return self._rng.standard_normal(shape)

    @property
    def generation(self) -> int:
        """Number of generations that were told."""
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
        # Bits of matrix products depend on the number of threads: a replay must have the same.
        with one_blas_thread():
            self._asked = self._strategy.ask()
        return np.array(self._asked)

    def tell(self, fitness: np.ndarray) -> None:
        """Move the distribution by the ranking of the generation that was asked for."""
        if self._asked is None:
            raise RuntimeError("tell comes after ask")
        fitness = np.asarray(fitness, np.float64)
        with one_blas_thread():
            self._strategy.tell(self._asked, (-fitness).tolist())  # pycma minimizes.
        self._fitness = np.concatenate([self._fitness, fitness[None]])
        self._asked = None

    def record(self) -> dict[str, np.ndarray]:
        """Return the fitness of all generations, (generations, population)."""
        return {"fitness": self._fitness}

    def restore(self, record: dict[str, np.ndarray]) -> None:
        """Continue from a record, by asking for and telling all of it again."""
        self._begin()
        for fitness in record["fitness"]:
            self.ask()
            self.tell(fitness)
