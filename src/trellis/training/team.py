"""Who holds the shards of a run: here, this process.

A team passes questions on to its shards and makes one answer of theirs. `LocalTeam` asks its shards
one after the other; `scale/ray.py` has the team whose shards live with workers on a cluster. Both
give the same bits. A single shard in this process takes its step as one compiled program; several,
wherever they are, answer the step's questions one by one.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from trellis import envs
from trellis.blas import one_blas_thread
from trellis.config import StepConfig, TrainConfig
from trellis.estimation.advantages import Spread
from trellis.optimization.conjugate_gradient import python_while
from trellis.optimization.step import StepInfo, take_step
from trellis.policies.policy import Policy
from trellis.search.shard import PopulationShard
from trellis.training.build import MakeEnv
from trellis.training.objective import TeamObjective
from trellis.training.reduction import Span, reduce_tree
from trellis.training.shard import Finished, Shard, Standing


class Team(Protocol):
    """What the trainer asks of those who hold the shards."""

    def ask(self, question: str, *arguments: Any) -> Any:
        """A question to every shard, named as its method; their answers as one."""
        ...

    def step(self, theta: np.ndarray, spread: Spread) -> tuple[np.ndarray, StepInfo]:
        """The step from θ on what was collected and estimated."""
        ...

    def finish(self, theta: np.ndarray) -> Finished:
        """Ends the iteration."""
        ...

    def stand(self, standings: Sequence[Standing]) -> None:
        """Puts each shard where it stood."""
        ...

    def rows(self) -> list[envs.Rows] | None:
        """The environments' snapshots, by shard, as they are between two iterations."""
        ...

    def close(self) -> None:
        """Lets go of environments and workers."""
        ...


MakeTeam = Callable[[TrainConfig, MakeEnv | None, Policy], Team]


class LocalTeam:
    """The shards of `span`, all unless said otherwise, in this process."""

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None = None,
        policy: Policy | None = None,
        span: Span | None = None,
    ):
        self._config, self._span = config, span or (0, config.sampling.shards)
        kind = PopulationShard if config.step.is_search else Shard
        self.shards: list[Any] = [
            kind(config, index, make_env, policy) for index in range(*self._span)
        ]

    def ask(self, question: str, *arguments: Any) -> Any:
        """Of one shard after the other."""
        with self._threads():
            answers = {
                (index, index + 1): getattr(shard, question)(*arguments)
                for index, shard in enumerate(self.shards, start=self._span[0])
            }
        return reduce_tree(self._span, answers)

    def step(self, theta: np.ndarray, spread: Spread) -> tuple[np.ndarray, StepInfo]:
        """Compiled as a whole for one shard."""
        if self._config.sampling.shards == 1:
            return self.shards[0].step(spread)
        return shared_step(self, theta, spread, self._config.step)

    def finish(self, theta: np.ndarray) -> Finished:
        """The environments stay where they are: no need for snapshots."""
        return self.ask("finish", theta)

    def stand(self, standings: Sequence[Standing]) -> None:
        """Each shard where it stood."""
        for shard, standing in zip(self.shards, standings, strict=True):
            shard.stand(standing)

    def rows(self) -> list[envs.Rows] | None:
        """Taken now."""
        rows = [shard.rows() for shard in self.shards]
        return None if rows[0] is None else [row for row in rows if row is not None]

    def close(self) -> None:
        """Lets go of the environments."""
        for shard in self.shards:
            shard.close()

    def _threads(self) -> contextlib.AbstractContextManager[Any]:
        """Several shards compute as a worker of a cluster does, with one thread for NumPy's
        products; a single one takes what there is."""
        several = self._config.sampling.shards > 1
        return one_blas_thread() if several else contextlib.nullcontext()


def shared_step(
    team: Team, theta: np.ndarray, spread: Spread, config: StepConfig
) -> tuple[np.ndarray, StepInfo]:
    """The step by questions to all shards; the same function as on one machine, its loops plain."""
    objective = TeamObjective(team.ask, spread)
    new, info = take_step(objective, theta, config, while_loop=python_while)
    return np.asarray(new), info
