"""Provides environments as batches, which samplers step together.

`make` creates a batch from an id or from a callable that returns a `gymnasium.Env`, and
`list_environments` lists the ids. The paper's tasks (Sec. 8.1) have ids that start with `trellis/`.
Importing this package registers them with Gymnasium. Simulators such as MuJoCo are imported when
their first environment is created. The names in `__all__` are public.

Example:
    >>> import numpy as np
    >>> import trellis.envs
    >>> batch = trellis.envs.make("CartPole-v1", num_envs=4)
    >>> observation = batch.reset(np.arange(4), seeds=np.arange(4))
    >>> step = batch.step(np.zeros(4, int))
    >>> observation.shape, step.reward.tolist()
    ((4, 4), [1.0, 1.0, 1.0, 1.0])
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
