"""The tree: every worker has one node of it, and who holds what changes no bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.estimation.advantages import (
    CriticFit,
    moments_by_state,
    moments_of_advantages,
    rescale,
    rescale_by_state,
)
from trellis.moments import Moments
from trellis.optimization.objective import Maximum
from trellis.training.reduction import divide, merge_answers, reduce_tree

SIZES = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(SIZES)
def test_workers_share_the_shards_evenly_in_order(size):
    shards, workers = size
    spans = divide((0, shards), workers)
    assert len(spans) == workers
    assert [i for span in spans for i in range(*span)] == list(range(shards))
    loads = [last - first for first, last in spans]
    assert min(loads) >= 1
    assert max(loads) <= 2 * -(-shards // workers) - 1


@given(SIZES, st.integers(0, 2**32 - 1))
def test_sums_have_the_same_bits_however_many_workers_there_are(size, seed):
    shards, workers = size
    values = np.random.default_rng(seed).normal(size=(shards, 3)).astype(np.float32)
    alone = {(i, i + 1): values[i] for i in range(shards)}
    partial = {span: reduce_tree(span, alone) for span in divide((0, shards), workers)}
    whole = reduce_tree((0, shards), alone)
    assert reduce_tree((0, shards), partial).tobytes() == whole.tobytes()
    np.testing.assert_allclose(whole, values.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_the_order_of_sums_is_that_of_the_tree():
    """1 + tiny + tiny is 1 in order, and more than 1 if the small ones come together first."""
    tiny = np.float32(6e-8)
    values = [np.float32(1), tiny, tiny, tiny]
    answers = {(i, i + 1): value for i, value in enumerate(values)}
    expected = (values[0] + values[1]) + (values[2] + values[3])
    assert expected != ((values[0] + values[1]) + values[2]) + values[3]
    assert reduce_tree((0, 4), answers) == expected


@pytest.mark.parametrize("cut", [1, 7, 19])
def test_statistics_of_parts_are_those_of_the_whole(cut):
    x = np.random.default_rng(0).normal(5, 2, size=20)
    merged = merge_answers(Moments.of(x[:cut]), Moments.of(x[cut:]))
    np.testing.assert_allclose(merged.mean, x.mean())
    np.testing.assert_allclose(merged.squares / merged.count, x.var())
    spread = merge_answers(moments_of_advantages(x[:cut]), moments_of_advantages(x[cut:]))
    np.testing.assert_allclose([spread.mean, spread.variance], [x.mean(), x.var()])
    parts = [rescale(part, "standardize", spread) for part in (x[:cut], x[cut:])]
    np.testing.assert_allclose(
        np.concatenate(parts), rescale(x, "standardize", moments_of_advantages(x))
    )


@pytest.mark.parametrize("how", ["center", "standardize"])
def test_of_equal_values_nothing_is_left(how):
    values = np.full((64, 32), 19.9, np.float32)
    assert values.mean() != values[0, 0]
    assert not rescale(values, how, moments_of_advantages(values)).any()
    assert not rescale(
        values, how, moments_of_advantages(values[:5]).merge(moments_of_advantages(values[5:]))
    ).any()


def test_vines_values_are_rescaled_by_the_spread_of_all_shards():
    q = np.random.default_rng(1).normal(3, 2, size=(12, 4))
    spread = merge_answers(moments_by_state(q[:4]), moments_by_state(q[4:]))
    parts = [rescale_by_state(part, "standardize", spread) for part in (q[:4], q[4:])]
    np.testing.assert_allclose(
        np.concatenate(parts), rescale_by_state(q, "standardize", moments_by_state(q))
    )
    assert not np.allclose(
        parts[0], rescale_by_state(q[:4], "standardize", moments_by_state(q[:4]))
    )


def test_critics_are_averaged_by_count_and_their_steps_are_not():
    nothing = Moments.zeros()
    one = {"w": np.float32([0.0, 8.0]), "steps": np.int32(5)}
    other = {"w": np.float32([4.0, 0.0]), "steps": np.int32(7)}
    fits = [
        CriticFit(critic, Moments.of_mean(loss, count), nothing, nothing)
        for critic, loss, count in ((one, 2.0, 1), (other, 6.0, 3))
    ]
    average = merge_answers(*fits)
    np.testing.assert_array_equal(average.critic["w"], [3.0, 2.0])
    assert average.critic["w"].dtype == np.float32
    assert average.critic["steps"] == 7
    assert (average.loss.count, average.loss.mean) == (4, 5.0)


def test_a_maximum_does_not_hide_what_is_not_a_number():
    assert merge_answers(Maximum(1.0), Maximum(3.0)).value == 3.0
    assert np.isnan(merge_answers(Maximum(np.nan), Maximum(3.0)).value)
    assert np.isnan(merge_answers(Maximum(3.0), Maximum(np.nan)).value)


def test_a_statistic_that_nobody_keeps_stays_nothing_and_lists_are_strung_together():
    assert merge_answers((None, [1], 2), (None, [3], 4)) == (None, [1, 3], 6)
