import numpy as np
import pytest

from tests.problems import POLICIES, random_batch, random_theta
from trellis.config import StepConfig
from trellis.estimation.surrogate import Estimator
from trellis.optimization.step import Status
from trellis.optimization.trust_region import TrustRegion, local_step

POLICY = POLICIES["gaussian"]
# The tests share these sizes, so that each program is compiled once.
WHOLE = {"expected_states": 2000}
CHUNKED = {"expected_states": 2000, "largest_chunk": 128}


def problem(n=300, seed=0, **options):
    rng = np.random.default_rng(seed)
    theta = random_theta(POLICY, rng).astype(np.float32)
    return theta, random_batch(POLICY, theta, n, rng, dtype=np.float32, **options)


def test_the_same_input_gives_the_same_bytes():
    theta, batch = problem(2000)
    results = []
    for _ in range(2):
        step = TrustRegion(POLICY, StepConfig(), **WHOLE)
        results += [step.step(theta, batch, np.random.default_rng(1)) for _ in range(2)]
    first_theta, first_info = results[0]
    assert first_info.status == Status.ACCEPTED
    for new, info in results[1:]:
        assert np.asarray(new).tobytes() == np.asarray(first_theta).tobytes()
        assert [float(x) for x in info] == [float(x) for x in first_info]


@pytest.mark.slow
def test_results_do_not_depend_on_earlier_batches():
    """Capacity grows with the largest batch so far, which must not change results."""
    theta, batch = problem(700)
    fresh = TrustRegion(POLICY, StepConfig(), **CHUNKED)
    used = TrustRegion(POLICY, StepConfig(), **CHUNKED)
    used.step(theta, problem(2000)[1], np.random.default_rng(0))
    one, _ = fresh.step(theta, batch, np.random.default_rng(1))
    other, _ = used.step(theta, batch, np.random.default_rng(1))
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_chunked_equals_whole_to_rounding():
    """Three CG iterations: ten of them amplify rounding of 1e-6 to as much as 1e-3."""
    theta, batch = problem(2000)
    config = StepConfig(cg_iterations=3)
    steps = [TrustRegion(POLICY, config, **sizes) for sizes in (WHOLE, CHUNKED)]
    (one, _), (other, _) = (s.step(theta, batch, np.random.default_rng(1)) for s in steps)
    moved = np.linalg.norm(np.asarray(one) - theta)
    assert moved > 0
    assert np.linalg.norm(np.asarray(one) - np.asarray(other)) < 1e-5 * moved


def test_fifty_batches_of_varying_size_compile_at_most_three_times():
    step = TrustRegion(POLICY, StepConfig(), **CHUNKED)
    sizes = np.random.default_rng(0).integers(500, 2000, size=50)
    theta, batch = problem(2000)
    compiled_before = local_step._cache_size()
    for size in sizes:
        part = type(batch)(*(leaf[:size] for leaf in batch))
        step.step(theta, part, np.random.default_rng(0))
    assert local_step._cache_size() - compiled_before <= 3


def test_several_actions_per_state_use_the_same_step():
    theta, batch = problem(200, actions=4)
    step = TrustRegion(POLICY, StepConfig(), Estimator.SELF_NORMALIZED, expected_states=200)
    new, info = step.step(theta, batch, np.random.default_rng(0))
    assert info.status == Status.ACCEPTED
    assert info.mean_kl <= 0.01
    assert not np.array_equal(new, theta)


def test_the_empirical_fisher_with_vine_is_an_error():
    with pytest.raises(ValueError, match="with the vine sampler use the method trpo"):
        TrustRegion(POLICY, StepConfig("empirical-fim"), Estimator.SELF_NORMALIZED)


def test_an_empty_batch_is_an_error():
    theta, batch = problem(5)
    empty = type(batch)(*(leaf[:0] for leaf in batch))
    with pytest.raises(ValueError, match="at least one state"):
        TrustRegion(POLICY, StepConfig()).step(theta, empty, np.random.default_rng(0))
