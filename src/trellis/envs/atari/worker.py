"""The process that some emulators of a batch live in. It knows nothing of JAX.

Commands are one byte through a socket and answers another; all else lies in memory that is shared
with the parent: `MemoryLayout`. It ends when the socket closes.
"""

import json
import mmap
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trellis.envs.atari.emulator import Emulator, row_fields
from trellis.envs.atari.screens import AtariGame

ALIGNMENT = 64
DONE, FAILED = b"k", b"f"
RESET, STEP, SAVE, LOAD, REPLAY, PICTURE = b"r", b"s", b"c", b"l", b"p", b"g"


@dataclass(frozen=True)
class MemoryLayout:
    """Where in the block of shared memory each array of the rows is."""

    game: AtariGame
    num_envs: int
    screen: tuple[int, int]

    def _places(self) -> tuple[dict[str, tuple[int, tuple[int, ...], Any]], int]:
        places, at = {}, 0
        fields = {
            name: ((self.num_envs, *shape), dtype)
            for name, (shape, dtype) in row_fields(self.game, self.screen).items()
        }
        for name, (shape, dtype) in {**fields, "picture": ((*self.screen, 3), np.uint8)}.items():
            places[name] = (at, shape, dtype)
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            at += -(-size // ALIGNMENT) * ALIGNMENT
        return places, at

    @property
    def size(self) -> int:
        """Bytes of the block; those that are never touched take no memory."""
        return self._places()[1]

    def arrays(self, memory: mmap.mmap) -> dict[str, NDArray[Any]]:
        """Views of the block, (num_envs, ...) but for the picture."""
        places, _ = self._places()
        return {
            name: np.ndarray(shape, dtype, memory, offset)
            for name, (offset, shape, dtype) in places.items()
        }

    def to_json(self) -> str:
        """For the command line of a worker."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "MemoryLayout":
        """And back."""
        values = json.loads(text)
        return cls(AtariGame(**values["game"]), values["num_envs"], tuple(values["screen"]))


class Worker:
    """The rows from `start` to `stop`."""

    def __init__(self, layout: MemoryLayout, memory: mmap.mmap, start: int, stop: int):
        arrays = layout.arrays(memory)
        self._picture = arrays.pop("picture")
        self._rows = [
            {name: array[index] for name, array in _with_scalars(arrays).items()}
            for index in range(start, stop)
        ]
        mine = slice(start, stop)
        self._active, self._actions = arrays["active"][mine], arrays["action"][mine]
        self._results = [arrays[name][mine] for name in ("reward", "terminated", "truncated")]
        self._emulators = [Emulator(layout.game, row) for row in self._rows]
        self.commands: dict[bytes, Callable[[], None]] = {
            RESET: self._reset,
            STEP: self._step,
            SAVE: self._save,
            LOAD: self._load,
            REPLAY: self._replay,
            PICTURE: self._draw,
        }

    def _chosen(self) -> list[tuple[Emulator, dict[str, NDArray[Any]]]]:
        pairs = zip(self._emulators, self._rows, strict=True)
        return [(emulator, row) for emulator, row in pairs if row["chosen"]]

    def _reset(self) -> None:
        for emulator, row in self._chosen():
            emulator.reset(int(row["seed"][0]))

    def _step(self) -> None:
        results = self._results
        for index in np.flatnonzero(self._active):
            outcome = self._emulators[index].step(int(self._actions[index]))
            results[0][index], results[1][index], results[2][index] = outcome

    def _save(self) -> None:
        for emulator, _ in self._chosen():
            emulator.save()

    def _load(self) -> None:
        for emulator, _ in self._chosen():
            emulator.load()

    def _replay(self) -> None:
        """From the saved state where there is one, else from the seed."""
        for emulator, row in self._chosen():
            if row["state_size"]:
                emulator.load()
            else:
                emulator.reset(int(row["seed"][0]))
            emulator.replay(int(row["replay"][0]))

    def _draw(self) -> None:
        for emulator, _ in self._chosen():
            self._picture[...] = emulator.picture()


def _with_scalars(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """One number a row as arrays of one, so that a row's is a view and not a copy."""
    return {name: array[:, None] if array.ndim == 1 else array for name, array in arrays.items()}


def main() -> None:
    """Answers until the parent closes the socket."""
    # Ctrl-C reaches the whole process group; the parent decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    layout = MemoryLayout.from_json(sys.argv[1])
    start, stop, socket_fd, memory_fd = (int(value) for value in sys.argv[2:])
    connection = socket.socket(fileno=socket_fd)
    try:
        worker = Worker(layout, mmap.mmap(memory_fd, layout.size), start, stop)
        connection.sendall(DONE)
        while command := connection.recv(1):
            worker.commands[command]()
            connection.sendall(DONE)
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except Exception:
        text = traceback.format_exc().encode()
        connection.sendall(FAILED + len(text).to_bytes(4, "little") + text)


if __name__ == "__main__":
    main()
