"""Defines `Array`, the type of arrays in code that runs both on NumPy and on JAX.

The two libraries share no base class that type checkers know, so the alias is `Any`. Shapes are
written with jaxtyping: `Float[Array, "time env"]`.
"""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A NumPy or a JAX array."""
