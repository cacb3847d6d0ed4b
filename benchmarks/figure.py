"""Defines `Figure`, a measured number with a bound."""

from typing import NamedTuple


class Figure(NamedTuple):
    """One line of the report: a ratio of two things measured in the same run."""

    name: str
    """Name of the figure."""
    value: float
    """Measured value."""
    bound: float | None
    """Bound on the value; None if the figure is only for information."""
    at_least: bool
    """Whether the bound is a lower bound rather than an upper bound."""

    @property
    def holds(self) -> bool:
        """Whether the value meets the bound."""
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.name:<64} {self.value:8.3f}"
        sign = "≥" if self.at_least else "≤"
        verdict = "ok" if self.holds else "MISSED"
        return f"{self.name:<64} {self.value:8.3f}  {sign} {self.bound:<6g} {verdict}"
