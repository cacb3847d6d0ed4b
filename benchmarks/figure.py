"""A measured number and the bound that it has to keep."""

from typing import NamedTuple


class Figure(NamedTuple):
    """One line of the report. Figures are ratios of things measured in the same run."""

    name: str
    value: float
    bound: float | None
    """None for a number that is only for information."""
    at_least: bool
    """Whether the bound is the least that is good, or the most."""

    @property
    def holds(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        if self.bound is None:
            return f"{self.name:<64} {self.value:8.3f}"
        sign = "≥" if self.at_least else "≤"
        verdict = "ok" if self.holds else "MISSED"
        return f"{self.name:<64} {self.value:8.3f}  {sign} {self.bound:<6g} {verdict}"
