"""Tests of the limit of BLAS threads."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from trellis.blas import one_blas_thread


def blas_threads() -> list[int]:
    np.eye(2) @ np.eye(2)
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]


def test_overlapping_blocks_keep_the_limit_and_the_last_one_lifts_it():
    before = blas_threads()
    if set(before) == {1}:
        pytest.skip("one thread is all that BLAS has here")
    one, other = one_blas_thread(), one_blas_thread()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    other.__exit__(None, None, None)
    assert blas_threads() == before
