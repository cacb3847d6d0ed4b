"""What the policy acts in: batches of environments.

Importing this package registers our tasks with Gymnasium. Simulators such as MuJoCo are imported
when the first of their environments is made.
"""

from trellis.envs.batch import BatchEnv, Restorability, Snapshot, Step
from trellis.envs.catalog import Listing, list_environments, make
from trellis.envs.consent import ConsentError
from trellis.envs.errors import (
    BadShapeError,
    BadValueError,
    EnvError,
    EnvRaisedError,
    NotRestorableError,
    WorkerDiedError,
    WorkerTimeoutError,
)
from trellis.envs.lookup import MissingExtraError, UnknownEnvironmentError
from trellis.envs.register import register_envs

register_envs()


__all__ = [
    "BadShapeError",
    "BadValueError",
    "BatchEnv",
    "ConsentError",
    "EnvError",
    "EnvRaisedError",
    "Listing",
    "MissingExtraError",
    "NotRestorableError",
    "Restorability",
    "Snapshot",
    "Step",
    "UnknownEnvironmentError",
    "WorkerDiedError",
    "WorkerTimeoutError",
    "list_environments",
    "make",
    "register_envs",
]
