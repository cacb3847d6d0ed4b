"""Tests of the objective for pictures against the one that XLA computes."""

import os

import jax
import numpy as np
import pytest

pytest.importorskip("numba")
from trellis.config import StepConfig
from trellis.estimation.state_batch import StateBatch, cut
from trellis.estimation.surrogate import Estimator
from trellis.inputs import Inputs
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.objective import LocalObjective
from trellis.optimization.picture_objective import PictureObjective
from trellis.optimization.rules import Curvature
from trellis.optimization.step import take_step
from trellis.optimization.trust_region import TrustRegion
from trellis.policies.convolutions import ConvNet
from trellis.policies.distributions import Categoricals, DiagGaussian
from trellis.policies.networks import MLP
from trellis.policies.policy import Policy
from trellis.policies.several import SeveralNetwork, VectorEncoder
from trellis.sampling.frames import FrameStore, Stacks

FACTORED = Policy(ConvNet((2, 14, 11), (3, 5), (4,), 5), Categoricals((3, 2)))
GAUSSIAN = Policy(ConvNet((2, 14, 11), (20,), (), 2), DiagGaussian(2))
SEEING = Policy(
    SeveralNetwork(
        (ConvNet((2, 14, 11), (3, 5), (), 4),),
        (VectorEncoder(0, 3, MLP(3, (), 4)),),
        MLP(8, (5,), 2),
    ),
    DiagGaussian(2),
)
N = 23


def data(policy: Policy, actions: int, *, stored: bool = False) -> tuple:
    """Return θ, a direction, and the batch in chunks: all states, and those of F."""
    rng = np.random.default_rng(0)
    theta = policy.init(rng) + 0.3 * rng.standard_normal(policy.num_params)
    observation = rng.integers(0, 256, (N, 2, 14, 11), dtype=np.uint8)
    if stored:
        store = FrameStore(2 * N, (14, 11))
        observation = Stacks(store.add(observation.reshape(-1, 14, 11)).reshape(N, 2), store)
    if isinstance(policy.network, SeveralNetwork):
        observation = Inputs((observation,), rng.standard_normal((N, 3)))
    action = rng.standard_normal((N, actions, 2))
    if isinstance(policy.distribution, Categoricals):
        action = rng.integers(0, 2, (N, actions, 2))
    log_q, value = rng.standard_normal((2, N, actions))
    batch = StateBatch(observation, action, log_q, value, *rng.random((2, N)))
    subset = jax.tree.map(lambda leaf: leaf[:11], batch)
    chunks = cut(batch, 8, 4, np.float64), cut(subset, 4, 4, np.float64)
    return theta, rng.standard_normal(theta.shape), batch, chunks


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("policy", "estimator", "curvature"),
    [
        (FACTORED, Estimator.SELF_NORMALIZED, Curvature.ANALYTIC),
        (GAUSSIAN, Estimator.IMPORTANCE, Curvature.ANALYTIC),
        (FACTORED, Estimator.IMPORTANCE, Curvature.EMPIRICAL),
        (SEEING, Estimator.IMPORTANCE, Curvature.ANALYTIC),
    ],
    ids=["factored", "gaussian", "empirical", "several inputs"],
)
@pytest.mark.parametrize("stored", [False, True], ids=["pictures", "stored"])
def test_all_answers_equal_xlas(policy, estimator, curvature, stored):
    actions = 1 if curvature is Curvature.EMPIRICAL else 3
    theta, v, _, chunks = data(policy, actions, stored=stored)
    problem = policy, estimator, curvature, theta, *chunks
    theirs = LocalObjective(*problem, entropy_bonus=0.1)
    ours = PictureObjective(*problem, entropy_bonus=0.1)
    for ask in (
        lambda objective: objective.start(),
        lambda objective: objective.fisher_product(v),
        lambda objective: objective.evaluate(v, np.float64(0.01)),
        lambda objective: objective.max_quadratic_kl(v),
    ):
        for a, b in zip(jax.tree.leaves(ask(ours)), jax.tree.leaves(ask(theirs)), strict=True):
            assert np.abs(a - b).max() <= 1e-11 * np.abs(b).max()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_a_whole_step_equals_xlas():
    theta, _, _, chunks = data(FACTORED, 1)
    problem = FACTORED, Estimator.IMPORTANCE, Curvature.ANALYTIC, theta, *chunks
    for rule in (StepConfig(), StepConfig(method="max-kl-step")):
        results = [
            take_step(kind(*problem), theta, rule, python_while)
            for kind in (PictureObjective, LocalObjective)
        ]
        (ours, info), (theirs, other) = results
        assert int(info.status) == int(other.status) == 0
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [LocalObjective, PictureObjective])
@pytest.mark.parametrize("stored", [False, True], ids=["pictures", "stored"])
def test_kl_of_equal_parameters_is_exactly_zero_for_several_inputs(kind, stored):
    theta, v, _, chunks = data(SEEING, 3, stored=stored)
    theta, v = theta.astype(np.float32), v.astype(np.float32)
    chunks = [c._replace(batch=jax.tree.map(_single, c.batch)) for c in chunks]
    objective = kind(SEEING, Estimator.IMPORTANCE, Curvature.ANALYTIC, theta, *chunks)
    sums = objective.evaluate(v, np.float32(0))
    assert (sums.gain, sums.kl, sums.max_kl) == (0.0, 0.0, 0.0)


def test_bits_depend_neither_on_threads_nor_on_what_is_kept(monkeypatch):
    theta, v, _, chunks = data(FACTORED, 3, stored=True)
    theta, v = theta.astype(np.float32), v.astype(np.float32)
    chunks = [c._replace(batch=jax.tree.map(_single, c.batch)) for c in chunks]

    def answers(**settings):
        problem = FACTORED, Estimator.SELF_NORMALIZED, Curvature.ANALYTIC, theta, *chunks
        objective = PictureObjective(*problem, **settings)
        found = objective.start(), objective.fisher_product(v), objective.evaluate(v, 1e-3)
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found)]

    expected = answers()
    assert answers(kept_bytes=0) == expected
    for cores in (1, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert answers() == expected


def _single(leaf: np.ndarray) -> np.ndarray:
    return leaf.astype(np.float32) if leaf.dtype.kind == "f" else leaf


def test_rejected_steps_return_theta_byte_for_byte():
    theta, _, batch, _ = data(FACTORED, 1, stored=True)
    theta = theta.astype(np.float32)
    batch = batch._replace(value=np.full_like(batch.value, np.nan))
    region = TrustRegion(FACTORED, StepConfig(), expected_states=N)
    new, info = region.step(theta, batch, np.random.default_rng(0))
    assert np.asarray(new).tobytes() == theta.tobytes()
    assert int(info.status) != 0
