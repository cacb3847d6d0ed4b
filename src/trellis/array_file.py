"""Read the arrays of a safetensors file that nobody vouches for.

The file starts with the size of its header (8 bytes) and the header (JSON), which gives type, shape
and place of each array. The arrays follow. They must fill the file without gaps.
"""

import math
import os
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from trellis import strict_json
from trellis.strict_json import INT64, shown

HEADER_BYTES = 1 << 20
"""Largest size in bytes of the header of arrays.safetensors, which lists the arrays."""
MOST_ARRAYS = 10_000
"""Largest number of arrays in a checkpoint."""
DTYPES = {
    "BOOL": "bool",
    **{f"U{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"I{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
}
"""Types of arrays, as safetensors and as NumPy name them."""


class ArraySpec(NamedTuple):
    """Type and shape of an array that has not been read yet."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def read_header(file: BinaryIO) -> tuple[dict[str, ArraySpec], dict[str, int]]:
    """Return type and shape of each array, and where in the file it starts.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: The header is not that of such a file.
    """
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(HEADER_BYTES, end - 8):
        raise ValueError(f"its header has {length:,} bytes")
    header = strict_json.parse(file.read(length), integers_below=INT64)
    if not isinstance(header, dict) or len(header) > MOST_ARRAYS:
        raise ValueError("its header is not a list of arrays")
    header.pop("__metadata__", None)
    specs, starts, filled = {}, {}, []
    for name, about in header.items():
        spec = ArraySpec(np.dtype(DTYPES[about["dtype"]]), tuple(about["shape"]))
        start, stop = about["data_offsets"]
        numbers = (*spec.shape, start, stop)
        if len(numbers) > 18 or not all(type(n) is int and 0 <= n < 2**40 for n in numbers):
            raise ValueError(f"the array {shown(name)} has no valid shape")
        if stop - start != math.prod(spec.shape) * spec.dtype.itemsize:
            raise ValueError(f"the array {shown(name)} has another size than its shape")
        specs[name], starts[name] = spec, 8 + length + start
        filled.append((start, stop))
    position = 0
    for start, stop in sorted(filled):
        if start != position:
            raise ValueError("its arrays overlap or leave gaps")
        position = stop
    if 8 + length + position != end:
        raise ValueError("its arrays do not fill the file")
    return specs, starts


def read_array(file: BinaryIO, start: int, spec: ArraySpec) -> NDArray[Any]:
    """Return the array of this type and shape that starts at a position of the file."""
    array = np.empty(spec.shape, spec.dtype)
    file.seek(start)
    flat: Any = array.reshape(-1).view(np.uint8)
    if cast(Any, file).readinto(memoryview(flat)) != flat.nbytes:
        raise OSError("the file of the arrays became shorter while it was read")
    return array.astype(spec.dtype.newbyteorder("="), copy=False)
