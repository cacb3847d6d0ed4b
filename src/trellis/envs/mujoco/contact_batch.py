"""Batch of simulations with contact forces: threads over MjData.

Gymnasium reads `cfrc_ext` after `mj_rnePostConstraint`, which needs the constraint forces of the
last Runge-Kutta stage. `mujoco.batch.Batch` does not keep them, so this class steps one MjData per
thread. MuJoCo releases Python's lock while it computes. As in `Batch`, a simulation is one row of
`state`, and results do not depend on the number of threads.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from trellis.envs.mujoco.task import Batch, SimulationError

# pyright: reportAttributeAccessIssue=false
# MuJoCo's bindings come without type stubs.

SPEC = mujoco.mjtState.mjSTATE_INTEGRATION.value
"""Parts of a simulation that its row of `state` holds."""
LEFT_OVER = ("cacc", "cfrc_int", "cfrc_ext")
"""Arrays of MjData that mj_forward leaves as they were: zero at a reset."""


class ContactBatch(Batch):
    """Batch whose steps end with `mj_rnePostConstraint`.

    Args:
        model: Model of all simulations.
        nsim: Number of simulations.
        nthread: Number of threads; 0 for all cores.
    """

    def __init__(self, model: mujoco.MjModel, nsim: int, nthread: int = 0):
        super().__init__(model, nsim, nthread)
        count = min(self.nthread, nsim)
        self._workers = [mujoco.MjData(model) for _ in range(count)]
        self._pool = ThreadPoolExecutor(count - 1, "mujoco") if count > 1 else None
        self._derived: dict[str, NDArray[Any]] = {}

    def bind(self, name: str) -> NDArray[Any]:
        """Return a live array over a field of MjData, one row per simulation."""
        if name in self._derived:
            return self._derived[name]
        values = super().bind(name)
        if np.shares_memory(values, self.state):
            return values
        self._derived[name] = np.zeros_like(values)
        return self._derived[name]

    def step(self, ids: Any = None, nstep: int = 1, stage: int = 0) -> None:
        """Advance simulations by `nstep` physics steps and compute their contact forces."""
        model = self.model

        def advance(data: mujoco.MjData) -> None:
            mujoco.mj_step(model, data, nstep)
            mujoco.mj_rnePostConstraint(model, data)

        self._run(ids, advance)

    def forward(self, ids: Any = None, stage: int = 0) -> None:
        """Compute derived arrays at the present states, without contact forces."""
        model = self.model

        def forward(data: mujoco.MjData) -> None:
            for name in LEFT_OVER:
                getattr(data, name)[:] = 0
            mujoco.mj_forward(model, data)

        self._run(ids, forward)

    def _run(self, ids: Any, call: Callable[[mujoco.MjData], None]) -> None:
        """Run `call` on simulations; each thread takes the next one that nobody has taken."""
        todo = range(self.nsim) if ids is None else np.asarray(ids).tolist()
        queue, failed = iter(todo), []
        futures = []
        if self._pool is not None:
            submit = self._pool.submit
            others = self._workers[1:]
            futures = [submit(self._drain, queue, data, call, failed) for data in others]
        try:
            self._drain(queue, self._workers[0], call, failed)
        finally:
            wait(futures)
        for future in futures:
            future.result()
        if failed:
            failed.sort()
            raise SimulationError(
                np.array([sim for sim, _ in failed]), failed[0][1], len(list(todo))
            )

    def _drain(
        self,
        queue: Iterable[int],
        data: mujoco.MjData,
        call: Callable[[mujoco.MjData], None],
        failed: list[tuple[int, str]],
    ) -> None:
        model, state = self.model, self.state
        fields = [(getattr(data, name), rows) for name, rows in self._derived.items()]
        for sim in queue:
            row = state[sim]
            mujoco.mj_setState(model, data, row, SPEC)
            try:
                call(data)
            except mujoco.FatalError as failure:
                failed.append((sim, str(failure)))
                continue
            mujoco.mj_getState(model, data, row, SPEC)
            for source, rows in fields:
                rows[sim] = source
