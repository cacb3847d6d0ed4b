"""Implements the cross-entropy method with decreasing noise (Szita & Lőrincz, 2006; Sec. 8.1).

A generation is sampled from N(m, diag(v)). The best ⌈ρλ⌉ of its λ members are the elite E. They
determine the distribution of the next generation:

    m ← mean(E)        v ← var(E) + Z_t        Z_t = ζ σ₀² max(1 − t/T, 0)

Without Z_t the variance vanishes long before the mean converges. Szita and Lőrincz use
Z_t = max(5 − t/10, 0) at σ₀² = 100. That is ζ = 0.05 and T = 50, the defaults here. Long runs need
noise for longer: at T = 0, the progress of the run takes the place of t/T.
"""

import math

import numpy as np

from trellis.config import SearchConfig
from trellis.rng import Purpose, stream

FEWEST_ELITE = 2
"""Smallest elite that has a variance."""


class CEM:
    """Cross-entropy method: `ask` for a generation, `tell` the fitness of its members.

    Args:
        mean: Initial mean m, (parameters,).
        std: Initial standard deviation σ₀ of every parameter.
        population: Number of members λ of a generation.
        settings: Elite fraction ρ, extra variance ζ and its number of generations T.
        seed: Seed of the run.
    """

    def __init__(
        self, mean: np.ndarray, std: float, population: int, settings: SearchConfig, seed: int = 0
    ):
        if population < FEWEST_ELITE:
            raise ValueError(f"CEM needs a population of {FEWEST_ELITE} or more, got {population}")
        self.mean = np.array(mean, np.float64)
        self.std = np.full(self.mean.shape, float(std))
        self.population = population
        # Rounded first, because 0.1 · 70 is 7.000000000000001.
        self.elite = max(FEWEST_ELITE, math.ceil(round(settings.elite_fraction * population, 9)))
        self.generation = 0
        self._extra_variance = settings.extra_variance * std**2
        self._noise_generations, self._seed = settings.noise_generations, seed
        self._asked: np.ndarray | None = None

    def ask(self) -> np.ndarray:
        """Sample the members of this generation, (population, parameters)."""
        rng = stream(self._seed, Purpose.SEARCH, iteration=self.generation)
        z = rng.standard_normal((self.population, self.mean.size))
        members = self.mean + self.std * z
        self._asked = members.copy()
        return members

    def tell(self, fitness: np.ndarray, progress: float = 0.0) -> None:
        """Move the distribution to the elite of the last generation.

        Args:
            fitness: Fitness of every member; larger is better.
            progress: Part of the run before this generation, which replaces t/T at T = 0.
        """
        if self._asked is None:
            raise RuntimeError("tell must be called after ask, once for each generation")
        best_first = np.argsort(-np.asarray(fitness), kind="stable")
        elite = self._asked[best_first[: self.elite]]
        self.mean = elite.mean(axis=0)
        if self._noise_generations > 0:
            progress = self.generation / self._noise_generations
        remaining = max(1.0 - progress, 0.0)
        self.std = np.sqrt(elite.var(axis=0) + self._extra_variance * remaining)  # Z_t
        self.generation += 1
        self._asked = None

    def record(self) -> dict[str, np.ndarray]:
        """Return everything that the next generation depends on, besides the settings."""
        return {"mean": self.mean, "std": self.std, "generation": np.array(self.generation)}

    def restore(self, record: dict[str, np.ndarray]) -> None:
        """Continue from the result of `record`."""
        self.mean, self.std = record["mean"], record["std"]
        self.generation = int(record["generation"])
        self._asked = None
