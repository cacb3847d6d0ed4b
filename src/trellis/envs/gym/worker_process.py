"""The worker's side of `gym_workers.py`: a `GymBatch` over some rows that answers a pipe.

Every answer is ("ok", value) or ("failed", what to tell). The block of shared memory starts with
one number per worker, the row it is at; the leaves of the observations follow.
"""

import signal
import traceback
from collections.abc import Callable
from multiprocessing import shared_memory
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from numpy.typing import NDArray

from trellis.envs.batch import EnvError
from trellis.envs.gym.border import ObservationBorder
from trellis.envs.gym.rows import GymBatch

ALIGNMENT = 64


def serve(
    connection: Connection, payload: bytes, num_envs: int, max_episode_steps: int | None
) -> None:
    """Makes the environments, says what they are, and answers until the pipe closes."""
    # Ctrl-C reaches the whole process group; the parent decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rows: WorkerRows | None = None
    try:
        factory = cloudpickle.loads(payload)
        rows = WorkerRows([factory] * num_envs, max_episode_steps, connection)
        connection.send(("ok", rows.about()))
    except Exception as error:
        connection.send(("failed", retell(error)))
        return
    try:
        while rows.answer():
            pass
    except (EOFError, BrokenPipeError):
        # The parent is gone, or going: there is nobody left to tell.
        return


class WorkerRows:
    """The rows of one worker, and where their observations go."""

    def __init__(
        self,
        factories: list[Callable[[], gymnasium.Env]],
        max_episode_steps: int | None,
        connection: Connection,
    ):
        self.batch = MappedBatch(
            factories, max_episode_steps=max_episode_steps, across_processes=True
        )
        self.border = ObservationBorder(self.batch.observation_space)
        self.connection = connection
        self.memory: shared_memory.SharedMemory | None = None
        self.leaves: list[NDArray[Any]] = []

    def about(self) -> dict[str, Any]:
        """What the parent needs to know."""
        batch = self.batch
        return {
            "env_id": batch.env_id,
            "observation_space": batch.observation_space,
            "action_space": batch.action_space,
            "max_episode_steps": batch.max_episode_steps,
            "restorability": batch.restorability.value,
            "why_not_restorable": batch.why_not_restorable,
            "render_mode": batch.render_mode,
        }

    def answer(self) -> bool:
        """Answers one command; False after the last."""
        command, payload = self.connection.recv()
        try:
            self.connection.send(("ok", getattr(self, command)(*payload)))
        except Exception as error:
            self.connection.send(("failed", retell(error)))
        return command != "close"

    def share(self, name: str, num_envs: int, workers: int, worker: int, start: int) -> None:
        """Takes part in the shared memory: rows from `start` on are ours."""
        self.memory = shared_memory.SharedMemory(name)
        at_work, leaves = shared_views(self.memory, self.border, num_envs, workers)
        self.leaves = [leaf[start : start + self.batch.num_envs] for leaf in leaves]
        self.batch.row_at_work = at_work[worker : worker + 1]

    def reset(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """Starts episodes; the observations are in shared memory."""
        self._publish(ids, self.batch.reset(ids, seeds))

    def step(self, actions: NDArray[Any], active: NDArray[np.bool_]) -> tuple[Any, ...]:
        """Advances the active rows; the observations are in shared memory."""
        step = self.batch.step(actions, active)
        self._publish(slice(None), step.observation)
        return step.reward, step.terminated, step.truncated, self.batch.info

    def snapshot(self, ids: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The states of the rows; steps and seeds are kept by both sides."""
        rows = self.batch.snapshot(ids)
        return {name: rows[name] for name in rows if name not in ("elapsed", "seed")}

    def restore(self, ids: NDArray[np.int64], rows: dict[str, NDArray[Any]]) -> None:
        """Puts rows back; the observations are in shared memory."""
        self._publish(ids, self.batch.restore(ids, rows))

    def reseed(self, ids: NDArray[np.int64], seeds: NDArray[np.int64]) -> None:
        """New random streams."""
        self.batch.reseed(ids, seeds)

    def render(self, index: int) -> NDArray[np.uint8]:
        """A picture of one row."""
        return self.batch.render(index)

    def close(self) -> None:
        """Closes the environments and lets go of the shared memory."""
        self.batch.row_at_work = np.zeros(1, np.int64)
        self.leaves = []
        if self.memory is not None:
            self.memory.close()
        self.batch.close()

    def _publish(self, ids: Any, observation: Any) -> None:
        for target, source in zip(self.leaves, self.border.flatten(observation), strict=True):
            target[ids] = source


class MappedBatch(GymBatch):
    """A batch whose actions were mapped by the parent already."""

    def map_actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """As they are."""
        return actions


def retell(error: Exception) -> dict[str, Any]:
    """An exception in terms that another process can unpickle."""
    if isinstance(error, EnvError):
        told = {
            "kind": type(error).__name__,
            **{name: getattr(error, name) for name in ("reason", "index", "step", "seed")},
        }
        cause = error.__cause__
    else:
        told, cause = {"kind": None}, error
    text = "".join(traceback.format_exception(error))
    return {**told, "cause": cloudpickle.dumps(portable(cause)), "traceback": text}


def portable(cause: BaseException | None) -> BaseException | None:
    """The exception itself where it survives pickling, else one with its text."""
    try:
        cloudpickle.loads(cloudpickle.dumps(cause))
    except Exception:
        return RuntimeError("".join(traceback.format_exception_only(cause)).strip())
    return cause


def shared_size(border: ObservationBorder, num_envs: int, workers: int) -> int:
    """Bytes of the block."""
    _, end = _offsets(border, num_envs, workers)
    return end


def shared_views(
    memory: shared_memory.SharedMemory, border: ObservationBorder, num_envs: int, workers: int
) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
    """The rows at work and the leaves of the observations, as they lie in the block."""
    offsets, _ = _offsets(border, num_envs, workers)
    at_work = np.ndarray((workers,), np.int64, memory.buf)
    leaves = [
        np.ndarray((num_envs, *leaf.shape), leaf.dtype, memory.buf, offset)
        for leaf, offset in zip(border.leaves, offsets, strict=True)
    ]
    return at_work, leaves


def _offsets(border: ObservationBorder, num_envs: int, workers: int) -> tuple[list[int], int]:
    at, offsets = 8 * workers, []
    for leaf in border.leaves:
        at = -(-at // ALIGNMENT) * ALIGNMENT
        offsets.append(at)
        at += num_envs * int(np.prod(leaf.shape, dtype=np.int64)) * leaf.dtype.itemsize
    return offsets, max(at, 1)
