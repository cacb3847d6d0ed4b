"""CMA: what pycma alone does, nothing global touched, and the same bytes when replayed."""

import math

import cma
import numpy as np
import pytest

from trellis.blas import one_blas_thread
from trellis.config import SearchConfig
from trellis.rng import Purpose, stream
from trellis.search.cma import CMA, default_population


def make_cma(mean, std, *, population, diagonal, seed=0):
    settings = SearchConfig(full_covariance_params=0 if diagonal else 1000)
    return CMA(mean, std, population, settings, seed)


def rosenbrock(x):
    a, b = x[..., :-1], x[..., 1:]
    return (100.0 * (b - a**2) ** 2 + (1.0 - a) ** 2).sum(axis=-1)


def test_it_does_on_rosenbrock_what_pycma_alone_does():
    n, generations = 8, 400
    population, rng = default_population(n), None
    ours = make_cma(np.zeros(n), 0.5, population=population, diagonal=False, seed=3)
    options = {"popsize": population, "seed": math.nan, "verbose": -10}
    options["randn"] = lambda *shape: rng.standard_normal(shape)
    with one_blas_thread():
        alone = cma.CMAEvolutionStrategy(np.zeros(n), 0.5, options)
        for generation in range(generations):
            rng = stream(3, Purpose.SEARCH, iteration=generation)
            members = alone.ask()
            alone.tell(members, [float(rosenbrock(x)) for x in members])
    for _ in range(generations):
        ours.tell(-rosenbrock(ours.ask()))
    assert population == alone.popsize == 10
    assert ours.mean.tobytes() == alone.mean.tobytes()
    assert rosenbrock(ours.mean) < 1e-8


def test_the_default_population_is_pycmas():
    for n in (2, 6, 364, 3406):
        diagonal = {"CMA_diagonal": True, "seed": math.nan, "verbose": -10}
        assert default_population(n) == cma.CMAEvolutionStrategy(n * [0], 1, diagonal).popsize


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_replay_has_the_same_bytes(diagonal):
    def make():
        return make_cma(np.linspace(-1, 1, 12), 0.3, population=10, diagonal=diagonal, seed=2)

    original = make()
    for _ in range(40):
        original.tell(-rosenbrock(original.ask()))
    replayed = make()
    replayed.restore(original.record())
    for name in ("mean", "std"):
        assert getattr(replayed, name).tobytes() == getattr(original, name).tobytes()
    assert replayed.generation == 40
    assert replayed.ask().tobytes() == original.ask().tobytes()


def test_the_diagonal_variant_learns_the_scale_of_each_parameter():
    search = make_cma(np.ones(8), 0.3, population=12, diagonal=True, seed=0)
    scales = np.geomspace(1, 100, 8)
    for _ in range(200):
        search.tell(-np.square(scales * search.ask()).sum(axis=1))
    np.testing.assert_array_less(np.abs(np.diff(np.log(search.std * scales))), 1.5)
    assert search.std[0] > 10 * search.std[-1]


def test_nothing_global_is_touched():
    np.random.seed(11)  # the very thing that is to stay
    before = np.random.get_state()
    search = make_cma(np.zeros(4), 1.0, population=6, diagonal=False, seed=1)
    for _ in range(3):
        search.tell(-rosenbrock(search.ask()))
    after = np.random.get_state()
    assert before[2] == after[2]
    np.testing.assert_array_equal(before[1], after[1])


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="population of 3 or more"):
        make_cma(np.zeros(4), 1.0, population=2, diagonal=False)
    with pytest.raises(RuntimeError, match="after ask"):
        make_cma(np.zeros(4), 1.0, population=6, diagonal=False).tell(np.zeros(6))
