"""The one array type of code that runs on NumPy and on JAX arrays alike.

The two libraries share no base class that type checkers know, so the alias is `Any`. Shapes are
written with jaxtyping: `Float[Array, "time env"]`.
"""

from typing import Any, TypeAlias

Array: TypeAlias = Any
