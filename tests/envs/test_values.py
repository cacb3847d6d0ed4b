"""Tests of the search for values that are not finite."""

import numpy as np
import pytest

from trellis.envs.values import LARGEST, MOST_IN_ONE_THREAD, first_not_finite


@pytest.mark.parametrize("columns", [3, MOST_IN_ONE_THREAD])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2 * LARGEST, -2 * LARGEST])
def test_the_first_row_that_is_not_finite_is_found(columns, bad):
    values = np.zeros((4, columns))
    assert first_not_finite(values) is None
    values[2, -1] = values[3, 0] = bad
    found = first_not_finite(values)
    assert found is not None
    assert found[0] == 2


@pytest.mark.parametrize("columns", [3, MOST_IN_ONE_THREAD])
def test_large_finite_values_are_accepted(columns):
    assert first_not_finite(np.full((2, columns), LARGEST)) is None
    assert first_not_finite(np.full((2, columns), -LARGEST)) is None
    assert first_not_finite(np.zeros((0, columns))) is None
