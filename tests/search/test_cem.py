"""CEM against the closed form of its update: moments of a truncated normal."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from trellis.config import SearchConfig
from trellis.rng import Purpose, stream
from trellis.search.cem import CEM

NORMAL = NormalDist()


def make(mean, std, *, population, seed=0, **settings):
    return CEM(mean, std, population, SearchConfig(**settings), seed)


def one_update(fitness_of, **settings):
    search = make(np.array([2.0]), 3.0, population=200_000, extra_variance=0.0, **settings)
    search.tell(fitness_of((search.ask()[:, 0] - 2.0) / 3.0))
    return (search.mean[0] - 2.0) / 3.0, search.std[0] / 3.0


def test_the_elite_of_a_sphere_are_a_normal_truncated_on_both_sides():
    mean, std = one_update(lambda z: -(z**2), elite_fraction=0.3)
    edge = NORMAL.inv_cdf(0.5 + 0.3 / 2)
    variance = 1 - 2 * edge * NORMAL.pdf(edge) / 0.3
    assert mean == pytest.approx(0.0, abs=4 * math.sqrt(variance / 60_000))
    assert std**2 == pytest.approx(variance, rel=4 * math.sqrt(2 / 60_000))


def test_the_elite_of_a_slope_are_its_upper_tail():
    mean, std = one_update(lambda z: z, elite_fraction=0.1)
    edge = NORMAL.inv_cdf(0.9)
    expected = NORMAL.pdf(edge) / 0.1
    assert mean == pytest.approx(expected, abs=0.02)
    assert std**2 == pytest.approx(1 + edge * expected - expected**2, rel=0.05)


def test_one_update_on_a_sphere_by_hand():
    start = np.array([1.0, -2.0, 0.5])
    search = make(start, 0.5, population=10, elite_fraction=0.25, noise_generations=4, seed=7)
    z = stream(7, Purpose.SEARCH, iteration=0).standard_normal((10, 3))
    members = start + 0.5 * z
    np.testing.assert_array_equal(search.ask(), members)
    search.tell(-np.square(members).sum(axis=1))
    elite = sorted(members.tolist(), key=lambda x: sum(v * v for v in x))[:3]  # ⌈0.25·10⌉
    mean = [sum(column) / 3 for column in zip(*elite, strict=True)]
    variance = [
        sum((v - m) ** 2 for v in column) / 3 + 0.05 * 0.25
        for column, m in zip(zip(*elite, strict=True), mean, strict=True)
    ]
    np.testing.assert_allclose(search.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(search.std**2, variance, rtol=1e-12)


def test_the_extra_noise_shrinks_to_nothing():
    # Where all members are the same, the variance that is left is the noise alone.
    search = make(np.zeros(2), 2.0, population=4, extra_variance=0.05, noise_generations=4)
    seen = []
    for _ in range(6):
        search.ask()
        search.std = np.zeros(2)
        search._asked = np.zeros((4, 2))
        search.tell(np.zeros(4))
        seen.append(search.std[0] ** 2)
    np.testing.assert_allclose(seen, [0.2, 0.15, 0.1, 0.05, 0.0, 0.0], atol=1e-12)


def test_without_generations_the_noise_shrinks_with_the_progress():
    search = make(np.zeros(2), 2.0, population=4, extra_variance=0.05, noise_generations=0)
    for progress, variance in [(0.0, 0.2), (0.25, 0.15), (0.9, 0.02), (1.0, 0.0), (1.1, 0.0)]:
        search.ask()
        search._asked = np.zeros((4, 2))
        search.tell(np.zeros(4), progress)
        np.testing.assert_allclose(search.std**2, variance, atol=1e-12)


def test_it_finds_the_top_of_a_hill_and_needs_the_noise_for_it():
    def distance(extra_variance):
        search = make(np.full(10, 3.0), 0.5, population=40, extra_variance=extra_variance, seed=1)
        for _ in range(100):
            search.tell(-np.square(search.ask()).sum(axis=1))
        return np.linalg.norm(search.mean)

    assert distance(0.05) < 0.01
    assert distance(0.0) > 0.1


def test_it_goes_on_from_its_record():
    def advance(search, generations):
        for _ in range(generations):
            search.tell(-np.square(search.ask()).sum(axis=1))
        return search

    whole = advance(make(np.ones(5), 1.0, population=12, seed=3), 6)
    half = advance(make(np.ones(5), 1.0, population=12, seed=3), 3)
    other = make(np.ones(5), 1.0, population=12, seed=3)
    other.restore(half.record())
    advance(other, 3)
    assert other.mean.tobytes() == whole.mean.tobytes()
    assert other.std.tobytes() == whole.std.tobytes()
    assert other.generation == 6


def test_an_elite_is_not_larger_by_rounding():
    assert make(np.zeros(2), 1.0, population=70).elite == 7
    assert make(np.zeros(2), 1.0, population=71).elite == 8


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="population of 2 or more"):
        make(np.zeros(2), 1.0, population=1)
    with pytest.raises(RuntimeError, match="after ask"):
        make(np.zeros(2), 1.0, population=4).tell(np.zeros(4))
