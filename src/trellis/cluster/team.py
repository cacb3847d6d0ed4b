"""Shards as Ray actors: the same training, its samples spread over a cluster.

Every worker is an actor with the shards of one node of the reduction tree, spread over machines by
a placement group. A question goes to all of them at once and their answers are added up in the
order of the tree, so the number of workers changes no bit of the result.

Any worker may die at any time. The team keeps where each shard stood after the last iteration and
what it was told since; a lost worker is replaced, its shards are put back, told the same again, and
asked the question that was open. Its streams are functions of seed, iteration and shard, so it
gives the answer that it would have given. The others' answers stand.
"""

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from trellis import envs
from trellis.cluster.connection import ClusterError, choose_workers, connect, disconnect, load_ray
from trellis.cluster.traffic import Traffic
from trellis.cluster.worker import ShardError, Worker
from trellis.config import TrainConfig
from trellis.estimation.advantages import Spread
from trellis.optimization.step import StepInfo
from trellis.policies.policy import Policy
from trellis.training.build import MakeEnv
from trellis.training.reduction import Span, divide, reduce_tree
from trellis.training.shard import Finished, Standing
from trellis.training.team import MakeTeam, shared_step

logger = logging.getLogger(__name__)

PLACEMENT_SECONDS = 15.0
"""For CPUs that the cluster has, but others may be using."""
REPLACEMENT_SECONDS = 15.0
"""For a new worker in the place of a lost one, before it may be put anywhere."""
MOST_LOSSES = 5
"""Of workers in a row over one question, before it is taken to be the question's fault."""
INLINE_BYTES = 100 << 10
"""Larger arguments go into Ray's object store once, not to every worker by themselves."""
BEGINNING = frozenset({"collect", "play"})
"""Questions that open an iteration; what was said before does not matter to it."""
TELLING = frozenset({"collect", "estimate", "gradient", "aim"})
"""Questions that leave a trace in a shard, which one rebuilt has to be given too."""


def team_on(cluster: str, workers: int | None = None) -> MakeTeam:
    """A maker of teams (`MakeTeam`) on this cluster."""

    def make(config: TrainConfig, make_env: MakeEnv | None, policy: Policy) -> RayTeam:
        return RayTeam(config, make_env, policy, cluster=cluster, workers=workers)

    return make


class RayTeam:
    """Holds the shards of a run on a cluster."""

    def __init__(
        self,
        config: TrainConfig,
        make_env: MakeEnv | None,
        policy: Policy,
        *,
        cluster: str = "auto",
        workers: int | None = None,
    ):
        shards = config.sampling.shards
        if shards == 1:
            raise ClusterError(
                "a run of one shard has nothing to spread over a cluster: start it with --shards N"
            )
        self._cpus = max(config.threads, 1)
        self._config = config
        self._parts = dataclasses.replace(config, threads=self._cpus), make_env, policy
        self._points = [Standing(None, np.zeros(config.sampling.part.paths))] * shards
        self._journal: list[tuple[str, tuple[Any, ...]]] = []
        self._actors: dict[Span, Any] = {}
        self._group: Any = None
        self.traffic = Traffic()
        self.losses = 0
        """Workers that were lost and replaced so far."""
        self._ours = connect(cluster)
        self._ray = load_ray()
        try:
            workers = choose_workers(shards, workers, self._cpus)
            self._spans = divide((0, shards), workers)
            self._place()
            built = {span: self._start(span) for span in self._spans}
            for span, ref in built.items():
                self._answer(span, ref, None, ())
        except BaseException:
            self.close()
            raise

    def ask(self, question: str, *arguments: Any) -> Any:
        """Of all workers at once; their answers in the order of the tree."""
        if question in BEGINNING:
            self._journal.clear()
            self.traffic.begin()
        sent = self._lay_down(arguments)
        asked = {span: self._send(span, question, sent) for span in self._spans}
        answers = {
            span: self._answer(span, ref, question, arguments) for span, ref in asked.items()
        }
        for span in self._spans:
            self.traffic.count(span, arguments, answers[span])
        if question in TELLING:
            self._journal.append((question, arguments))
        return reduce_tree((0, len(self._points)), answers)

    def step(self, theta: np.ndarray, spread: Spread) -> tuple[np.ndarray, StepInfo]:
        """By questions to all shards."""
        return shared_step(self, theta, spread, self._config.step)

    def finish(self, theta: np.ndarray) -> Finished:
        """With snapshots, from which a lost shard can be rebuilt."""
        finished: Finished = self.ask("finish", theta, True)
        self._points = finished.standings
        self._journal.clear()
        return finished

    def stand(self, standings: Sequence[Standing]) -> None:
        """Puts each shard where it stood; from there it would be rebuilt."""
        self._points = list(standings)
        self._journal.clear()
        for span in self._spans:
            self._answer(span, self._actors[span].stand.remote(self._points_of(span)), None, ())

    def rows(self) -> list[envs.Rows] | None:
        """As they were at the end of the last iteration, or put back."""
        rows = [point.rows for point in self._points]
        return None if None in rows else [row for row in rows if row is not None]

    def close(self) -> None:
        """Ends the workers, and Ray if it was started for them."""
        with contextlib.suppress(Exception):
            for actor in self._actors.values():
                self._ray.kill(actor)
            if self._group is not None:
                self._ray.util.remove_placement_group(self._group)
        self._actors.clear()
        if self._ours:
            self._ours = False
            disconnect()

    def _place(self) -> None:
        ray, workers = self._ray, len(self._spans)
        self._group = ray.util.placement_group([{"CPU": self._cpus}] * workers, strategy="SPREAD")
        if not self._group.wait(PLACEMENT_SECONDS):
            free = ray.available_resources().get("CPU", 0)
            raise ClusterError(
                f"{workers} workers of {self._cpus} CPUs found no place within"
                f" {PLACEMENT_SECONDS:.0f} seconds; {free:g} CPUs of the cluster are free. Wait for"
                " the others, or use fewer --workers (the result is the same)"
            )

    def _start(self, span: Span, *, anywhere: bool = False) -> Any:
        """A new worker in the place of this span, or where there is room; what tells it is built.

        Bit for bit, a worker must sum in the order in which this process would: the same number of
        threads for XLA, one for NumPy's products (which `LocalTeam` sees to).
        """
        environment = {"NPROC": os.environ.get("NPROC") or str(_num_cores())}
        for name in ("JAX_PLATFORMS", "JAX_ENABLE_X64"):
            if name in os.environ:
                environment[name] = os.environ[name]
        if anywhere:
            options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        else:
            strategies = self._ray.util.scheduling_strategies
            place = strategies.PlacementGroupSchedulingStrategy(
                self._group, self._spans.index(span)
            )
            options = {"num_cpus": self._cpus, "scheduling_strategy": place}
        kind: Any = self._ray.remote(Worker)
        self._actors[span] = kind.options(**options).remote(environment, span)
        return self._actors[span].build.remote(*self._parts)

    def _send(self, span: Span, question: str, arguments: Sequence[Any]) -> Any:
        return self._actors[span].ask.remote(question, *arguments)

    def _answer(self, span: Span, ref: Any, question: str | None, arguments: Sequence[Any]) -> Any:
        """What was asked for; by another worker in its place, as often as one is lost."""
        errors = self._ray.exceptions
        lost = (
            errors.RayActorError,
            errors.NodeDiedError,
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,  # killed by Ray, before its machine runs out of it
        )
        last: Exception | None = None
        for losses in range(MOST_LOSSES + 1):
            try:
                if losses:
                    self._rebuild(span)
                    ref = self._send(span, question, arguments) if question else None
                return self._get(ref) if ref is not None else None
            except lost as error:
                self.losses += 1
                reason = str(error).strip().splitlines()[0]
                logger.warning(
                    "the worker of shards %d to %d was lost while it did %s (%s): replacing it",
                    *(span[0], span[1] - 1, question or "take its place", reason),
                )
                last = error
        raise ClusterError(
            f"{MOST_LOSSES + 1} workers in a row died over {question!r} for shards {span[0]} to"
            f" {span[1] - 1}; perhaps memory runs out there, or the environment crashes: {last}"
        )

    def _rebuild(self, span: Span) -> None:
        """A new worker, put where the old one's shards stood and told what it had been told."""
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[span])
        built = self._start(span)
        if not self._came_up(span):
            logger.warning(
                "there are no CPUs left for it: it shares those of others, which costs time alone"
            )
            with contextlib.suppress(Exception):
                self._ray.kill(self._actors[span])
            built = self._start(span, anywhere=True)
        points = self._points_of(span)
        unsaved = any(point.path is not None and point.rows is None for point in points)
        if unsaved and not self._config.sampling.starts_anew:
            logger.warning(
                "%s cannot be saved, so the episodes of the lost shards start anew: training goes"
                " on, but not bit for bit as it would have",
                self._config.env,
            )
            points = [
                point._replace(path=None, discounted_return=np.zeros_like(point.discounted_return))
                for point in points
            ]
        # An actor does things in the order in which they were asked for.
        actor = self._actors[span]
        stood = actor.stand.remote(points)
        told = [actor.ask.remote(question, *arguments) for question, arguments in self._journal]
        self._get([built, stood, *told])

    def _came_up(self, span: Span) -> bool:
        """Whether the new worker found its place; a node that is gone takes its place with it."""
        deadline = time.monotonic() + REPLACEMENT_SECONDS
        timeout = self._ray.exceptions.GetTimeoutError
        with contextlib.suppress(timeout):
            self._ray.get(self._actors[span].pid.remote(), timeout=deadline - time.monotonic())
            return True
        return False

    def _points_of(self, span: Span) -> list[Standing]:
        return self._points[slice(*span)]

    def _lay_down(self, arguments: Sequence[Any]) -> list[Any]:
        """Arguments as they are sent: what is large once for all workers of a machine."""
        return [
            self._ray.put(value) if getattr(value, "nbytes", 0) > INLINE_BYTES else value
            for value in arguments
        ]

    def _get(self, refs: Any) -> Any:
        try:
            return self._ray.get(refs)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ShardError):
                raise error.cause from None
            raise


def _num_cores() -> int:
    """That this process may use: what XLA goes by, unless NPROC says otherwise."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on this platform.
        return os.cpu_count() or 1
