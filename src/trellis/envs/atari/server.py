"""Implements the worker's side of an Atari batch: its emulators and the layout of shared memory.

Arguments and results of commands are in shared memory. This module does not import JAX.
"""

import mmap
from collections.abc import Callable

import numpy as np

from trellis.envs.atari.emulator import Emulator, environment_fields
from trellis.envs.atari.game import AtariGame
from trellis.envs.shared_arrays import SharedArrays

RESULTS = ("reward", "terminated", "truncated")
"""Names of the shared arrays that hold the result of a step."""


def shared_arrays(game: AtariGame, num_envs: int, screen: tuple[int, int]) -> SharedArrays:
    """Return the layout of the memory: arrays with one row per environment, and one picture."""
    fields = {
        name: ((num_envs, *shape), dtype)
        for name, (shape, dtype) in environment_fields(game, screen).items()
    }
    return SharedArrays({**fields, "picture": ((*screen, 3), np.uint8)})


class AtariServer:
    """Emulators of one worker; its methods are the commands of the parent.

    Args:
        memory_fd: File descriptor of the shared memory.
        game: The game and its rules.
        num_envs: Size of the batch.
        screen: Height and width of the game's screen.
        start: Index of the first environment of this worker.
        stop: One past the last environment of this worker.
    """

    def __init__(
        self,
        memory_fd: int,
        game: AtariGame,
        num_envs: int,
        screen: tuple[int, int],
        start: int,
        stop: int,
    ):
        layout = shared_arrays(game, num_envs, screen)
        arrays = layout.views(mmap.mmap(memory_fd, layout.size))
        picture = arrays.pop("picture")
        mine = {name: array[start:stop] for name, array in arrays.items()}
        self._chosen, self._active, self._actions = mine["chosen"], mine["active"], mine["action"]
        self._results = [mine[name] for name in RESULTS]
        # Scalars become arrays of length 1, so that rows are views and not copies.
        rows = {name: array[:, None] if array.ndim == 1 else array for name, array in mine.items()}
        self._emulators = [
            Emulator(game, {name: array[row] for name, array in rows.items()}, picture)
            for row in range(stop - start)
        ]

    def each(self, command: Callable[[Emulator], None]) -> None:
        """Run a command for the chosen environments."""
        for index in np.flatnonzero(self._chosen):
            command(self._emulators[index])

    def step(self) -> None:
        """Advance the active environments."""
        for index in np.flatnonzero(self._active):
            outcome = self._emulators[index].step(int(self._actions[index]))
            for result, value in zip(self._results, outcome, strict=True):
                result[index] = value
