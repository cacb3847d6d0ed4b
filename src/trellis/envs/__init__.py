"""What the policy acts in: batches of environments.

Importing this registers our tasks with Gymnasium. MuJoCo and the environments' own packages are
loaded when the first of them is made.
"""

from trellis.envs.batch import (
    BadShapeError,
    BadValueError,
    BatchEnv,
    EnvError,
    EnvRaisedError,
    NotRestorableError,
    Restorability,
    Rows,
    Step,
    WorkerDiedError,
    WorkerTimeoutError,
)
from trellis.envs.catalog import (
    Listing,
    MissingExtraError,
    UnknownEnvironmentError,
    list_environments,
    make,
)
from trellis.envs.register import register_envs

register_envs()

__all__ = [
    "BadShapeError",
    "BadValueError",
    "BatchEnv",
    "EnvError",
    "EnvRaisedError",
    "Listing",
    "MissingExtraError",
    "NotRestorableError",
    "Restorability",
    "Rows",
    "Step",
    "UnknownEnvironmentError",
    "WorkerDiedError",
    "WorkerTimeoutError",
    "list_environments",
    "make",
    "register_envs",
]
