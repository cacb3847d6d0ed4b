"""Runs lanes of environments side by side: each samples its whole segment in a thread of its own.

The simulator releases Python's lock, so one lane steps while the policy acts in another, and no
lane waits for the others before the end of the iteration. The lanes are a property of the batch and
not of the number of threads, because samples depend on them: the rounding of a matrix product
depends on its number of rows, and every lane has its own random stream for resets.
"""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from trellis.sampling.samples import PathState, Samples

Result = TypeVar("Result")


class CancelledError(Exception):
    """The lane stopped because another one failed or was interrupted."""


class Lookout:
    """Tells lanes whether to stop early; each calls `check` in every time step."""

    def __init__(self):
        self._stop = False

    def stop(self) -> None:
        """Ask all lanes to stop."""
        self._stop = True

    def check(self) -> None:
        """Raise `CancelledError` if the lanes shall stop."""
        if self._stop:
            raise CancelledError


def run_lanes(
    calls: Sequence[Callable[[], Result]], lookout: Lookout, *, threads: int
) -> list[Result]:
    """Return the results of all calls, one per lane.

    If one raises an exception, the others stop at their next time step. An exception in the calling
    thread, such as KeyboardInterrupt, comes first.

    Args:
        calls: Functions that sample one lane each.
        lookout: Lookout that the functions check.
        threads: Number of threads. With one, the calls run one after the other; otherwise each has
            a thread, and the first one runs in the calling thread.
    """
    if threads == 1:
        return [call() for call in calls]
    results: dict[int, Result] = {}
    failures: dict[int, BaseException] = {}

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except BaseException as failure:  # Raised below, in the calling thread.
            lookout.stop()
            failures[index] = failure

    # A copy of the context keeps how NumPy treats overflow.
    others = [
        threading.Thread(target=contextvars.copy_context().run, args=(run, index), daemon=True)
        for index in range(1, len(calls))
    ]
    for thread in others:
        thread.start()
    try:
        run(0)
        for thread in others:
            thread.join()
    except BaseException:  # An interrupt while this thread waits.
        lookout.stop()
        raise
    for _, failure in sorted(failures.items()):
        if not isinstance(failure, CancelledError):
            raise failure
    return [results[index] for index in range(len(calls))]


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Return the samples of all lanes as one, with the environments in the order of the lanes.

    Observations must be vectors, and the samples must have no branches.
    """

    def by_env(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts], axis=1)

    starts = np.cumsum([0, *(part.reward.shape[1] for part in parts)])
    pairs = zip(parts, starts[:-1], strict=True)
    ends = np.concatenate([part.final_at + np.array([0, start]) for part, start in pairs])
    order = np.lexsort((ends[:, 1], ends[:, 0]))  # by time, then by environment

    def by_episode(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    carries = [part.carries for part in parts if part.carries is not None]
    joined = None
    if carries:
        before = np.concatenate([part.before for part in carries], axis=1)
        final = np.concatenate([part.final for part in carries])[order]
        joined = type(carries[0])(before, final, np.concatenate([part.last for part in carries]))
    return Samples(
        observation=by_env("observation"),
        raw_observation=by_env("raw_observation"),
        action=by_env("action"),
        log_q=by_env("log_q"),
        reward=by_env("reward"),
        terminated=by_env("terminated"),
        truncated=by_env("truncated"),
        age=by_env("age"),
        final_at=ends[order],
        final_observation=by_episode("final_observation"),
        episode_return=by_episode("episode_return"),
        episode_length=by_episode("episode_length"),
        last_observation=np.concatenate([part.last_observation for part in parts]),
        carries=joined,
    )


def join_states(parts: Sequence[PathState]) -> PathState:
    """Return the states of all lanes as one."""
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)


def state_of_lane(state: PathState, lane: slice) -> PathState:
    """Return the part of a state that belongs to a lane."""
    return jax.tree.map(lambda values: values[lane], state)
