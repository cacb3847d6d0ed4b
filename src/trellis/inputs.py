"""Defines `Inputs`, a batch of observations that consist of pictures and a vector.

The encoder of a Dict or Tuple space with pictures returns `Inputs`: every picture as bytes, and
everything else, with the action mask at its end, as one row of numbers. `Inputs` behaves like an
array along its leading axes, so samplers and estimators index and reshape it like a vector.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Inputs:
    """Pictures and rows of a batch of observations.

    Example:
        >>> inputs = Inputs((np.zeros((5, 1, 64, 64), np.uint8),), np.zeros((5, 3)))
        >>> len(inputs), len(inputs[1:3])
        (5, 2)
    """

    pictures: tuple[Any, ...]
    """Bytes (..., channels, height, width) of each picture, or frame indices (..., channels)."""
    rows: Any
    """All other features, and after them the action mask if there is one, (..., features)."""

    @property
    def lead(self) -> tuple[int, ...]:
        """Leading axes, those of the batch."""
        return self.rows.shape[:-1]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> "Inputs":
        return Inputs(tuple(picture[key] for picture in self.pictures), self.rows[key])

    def __setitem__(self, key: Any, value: "Inputs") -> None:
        for picture, new in zip(self.pictures, value.pictures, strict=True):
            picture[key] = new
        self.rows[key] = value.rows

    def copy(self) -> "Inputs":
        """Return a copy of all arrays."""
        return Inputs(tuple(picture.copy() for picture in self.pictures), self.rows.copy())

    def reshape(self, *lead: int) -> "Inputs":
        """Return the observations with other leading axes.

        A last -1 means the axes of one observation, so that the call is the same as for vectors.
        """
        lead = lead[:-1] if lead[-1] == -1 else lead
        axes, pictures = len(self.lead), []
        for picture in self.pictures:
            # Indices into a store of frames know the shape of one picture themselves.
            own = (-1,) if hasattr(picture, "store") else picture.shape[axes:]
            pictures.append(picture.reshape(*lead, *own))
        return Inputs(tuple(pictures), self.rows.reshape(*lead, self.rows.shape[-1]))

    def gathered(self) -> "Inputs":
        """Return the pictures as arrays, if they are indices of frames in a store."""
        return Inputs(tuple(np.asarray(picture) for picture in self.pictures), self.rows)


def gathered(observation: Any) -> Any:
    """Return observations as arrays, also if their pictures are indices of frames in a store."""
    return observation.gathered() if isinstance(observation, Inputs) else np.asarray(observation)


def with_lead(observation: Any, *lead: int) -> Any:
    """Return observations (n, ...) with other leading axes."""
    if isinstance(observation, Inputs):
        return observation.reshape(*lead, -1)
    return observation.reshape(*lead, *observation.shape[1:])
