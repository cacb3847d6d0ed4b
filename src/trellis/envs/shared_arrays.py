"""Lays out arrays in memory that worker processes share, and divides a batch among workers."""

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT = 64
"""Alignment of each array in bytes: a cache line."""
Fields = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
"""Shape and data type of arrays, by name."""


class SharedArrays:
    """Layout of named arrays in one block of memory, each aligned to a cache line.

    Args:
        fields: Name, shape and data type of each array.
    """

    def __init__(self, fields: Fields):
        self.size = 0
        self._places: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        for name, (shape, dtype) in fields.items():
            self._places[name] = (self.size, shape, np.dtype(dtype))
            nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            self.size += -(-nbytes // ALIGNMENT) * ALIGNMENT

    def views(self, memory: mmap.mmap) -> dict[str, NDArray[Any]]:
        """Return the arrays as views of the memory."""
        return {
            name: np.ndarray(shape, dtype, memory, offset)
            for name, (offset, shape, dtype) in self._places.items()
        }


def split(start: int, stop: int, count: int) -> list[int]:
    """Return the `count` + 1 edges of `count` nearly equal parts of a range.

    Example:
        >>> split(0, 10, 3)
        [0, 3, 6, 10]
    """
    return [start + (stop - start) * i // count for i in range(count + 1)]
