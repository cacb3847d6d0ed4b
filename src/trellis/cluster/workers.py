"""A group of Ray workers that hold the shards of a run, and replaces those that die.

Every worker is an actor with the shards of one node of the reduction tree, spread over machines by
a placement group. A call goes to all of them at once and their answers are merged in the order of
the tree, so the number of workers changes no bit of the result.

Any worker may die at any time. The group keeps the calls that changed a worker's shards since they
were last saved. A replacement restores their state, replays those calls and repeats the pending
one. Random streams are functions of seed, iteration and shard, so it gives the answer that the lost
worker would have given.
"""

import contextlib
import dataclasses
import functools
import logging
import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import cloudpickle

from trellis.cluster.connection import ClusterError, choose_workers, connect, disconnect, load_ray
from trellis.cluster.worker import ShardError, Worker
from trellis.config import TrainConfig
from trellis.training.reduction import Span, divide, reduce_tree

logger = logging.getLogger(__name__)

PLACEMENT_SECONDS = 15.0
"""Time to wait for CPUs that the cluster has, but others may be using."""
REPLACEMENT_SECONDS = 15.0
"""Time for a new worker in the place of a lost one, before it may be started anywhere."""
MAX_LOSSES = 5
"""Workers that may die in a row over one call, before the call is taken to be the reason."""
INLINE_BYTES = 100 << 10
"""Larger calls go into Ray's object store once, instead of to every worker by themselves."""

Held = TypeVar("Held")
Answer = TypeVar("Answer")


class WorkerGroup(Generic[Held]):
    """Workers that each hold the shards of one span.

    Args:
        make: builds what a worker holds, from the settings and its span.
        config: settings of the run.
        cluster: "local", "auto", or the address of the cluster's head.
        workers: number of workers; by default one per `config.threads` CPUs of the cluster.
        restore: returns the call that restores the shards of a new worker.
    """

    def __init__(
        self,
        make: Callable[[TrainConfig, Span], Held],
        config: TrainConfig,
        cluster: str,
        workers: int | None,
        *,
        restore: Callable[[], Callable[[Held], None]] | None = None,
    ):
        self._shards, self._cpus = config.sampling.shards, max(config.threads, 1)
        if self._shards == 1:
            raise ClusterError(
                "a run of one shard has nothing to spread over a cluster: start it with --shards N"
            )
        part = dataclasses.replace(config, threads=self._cpus)
        self._make, self._restore = cloudpickle.dumps(functools.partial(make, part)), restore
        self._journal: list[bytes] = []
        self._actors: dict[Span, Any] = {}
        self._placement: Any = None
        self.losses = 0
        """Workers that were lost and replaced so far."""
        self._connected = connect(cluster)
        self._ray = load_ray()
        try:
            workers = choose_workers(self._shards, workers, self._cpus)
            self.spans = divide((0, self._shards), workers)
            self._place()
            built = {span: self._start(span) for span in self.spans}
            for span, ref in built.items():
                self._answer(span, ref, "start", None)
        except BaseException:
            self.close()
            raise

    def ask(
        self, what: str, call: Callable[[Held], Answer], *, changes_shards: bool = False
    ) -> Answer:
        """Apply a function to what every worker holds and merge the answers.

        Args:
            what: name of the call, for messages.
            call: the function.
            changes_shards: whether a replaced worker has to repeat it.
        """
        payload = cloudpickle.dumps(call)
        sent = self._ray.put(payload) if len(payload) > INLINE_BYTES else payload
        asked = {span: self._send(span, what, sent) for span in self.spans}
        answers = {span: self._answer(span, ref, what, sent) for span, ref in asked.items()}
        if changes_shards:
            self._journal.append(payload)
        return reduce_tree((0, self._shards), answers)

    def saved(self) -> None:
        """Forget past calls: what a new worker would restore includes their effects."""
        self._journal.clear()

    def close(self) -> None:
        """End the workers, and Ray if it was started for them."""
        with contextlib.suppress(Exception):
            for actor in self._actors.values():
                self._ray.kill(actor)
            if self._placement is not None:
                self._ray.util.remove_placement_group(self._placement)
        self._actors.clear()
        if self._connected:
            self._connected = False
            disconnect()

    def _place(self) -> None:
        ray, workers = self._ray, len(self.spans)
        bundles = [{"CPU": self._cpus}] * workers
        self._placement = ray.util.placement_group(bundles, strategy="SPREAD")
        if not self._placement.wait(PLACEMENT_SECONDS):
            free = ray.available_resources().get("CPU", 0)
            raise ClusterError(
                f"{workers} workers of {self._cpus} CPUs found no place within"
                f" {PLACEMENT_SECONDS:.0f} seconds; {free:g} CPUs of the cluster are free. Wait for"
                " the others, or use fewer --workers (the result is the same)"
            )

    def _start(self, span: Span, *, anywhere: bool = False) -> Any:
        """Start a worker for this span, in its place or wherever there is room.

        For the same bits a worker must sum in the order in which this process would: the same
        number of XLA threads, and one thread for NumPy's products.
        """
        environment = {"NPROC": str(_num_cores())}
        for name in ("NPROC", "JAX_PLATFORMS", "JAX_ENABLE_X64"):
            if os.environ.get(name):
                environment[name] = os.environ[name]
        if anywhere:
            options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        else:
            strategies = self._ray.util.scheduling_strategies
            place = strategies.PlacementGroupSchedulingStrategy(
                self._placement, self.spans.index(span)
            )
            options = {"num_cpus": self._cpus, "scheduling_strategy": place}
        kind: Any = self._ray.remote(Worker)
        self._actors[span] = kind.options(**options).remote(environment, span)
        return self._actors[span].build.remote(self._make)

    def _send(self, span: Span, what: str, call: Any) -> Any:
        """Send a pickled call, or the reference of one, to a worker; `what` names it."""
        return self._actors[span].apply.remote(call)

    def _answer(self, span: Span, ref: Any, what: str, call: Any) -> Any:
        """Return a worker's answer; if the worker is lost, that of its replacement."""
        errors = self._ray.exceptions
        lost = (
            errors.RayActorError,
            errors.NodeDiedError,
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,  # killed by Ray, before its machine runs out of memory
        )
        last: Exception | None = None
        for losses in range(MAX_LOSSES + 1):
            try:
                if losses:
                    self._replace(span)
                    ref = None if call is None else self._send(span, what, call)
                return None if ref is None else self._get(ref)
            except lost as error:
                self.losses += 1
                reason = str(error).strip().splitlines()[0]
                logger.warning(
                    "Lost the worker of shards %d to %d during %s (%s); starting a replacement.",
                    *(span[0], span[1] - 1, what, reason),
                )
                last = error
        raise ClusterError(
            f"{MAX_LOSSES + 1} workers in a row died during {what} for shards {span[0]} to"
            f" {span[1] - 1}; perhaps memory runs out there, or the environment crashes: {last}"
        )

    def _replace(self, span: Span) -> None:
        """Start a new worker, restore its shards and replay the calls that changed them."""
        self._kill(span)
        built = self._start(span)
        if not self._came_up(span):
            logger.warning("No CPUs are free for it: it shares those of others, which is slower.")
            self._kill(span)
            built = self._start(span, anywhere=True)
        # An actor runs its calls in the order in which they were sent.
        actor = self._actors[span]
        calls = list(self._journal)
        if self._restore is not None:
            calls.insert(0, cloudpickle.dumps(self._restore()))
        self._get([built, *(actor.apply.remote(call) for call in calls)])

    def _kill(self, span: Span) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[span])

    def _came_up(self, span: Span) -> bool:
        """Whether the new worker found its place; a node that is gone takes its place with it."""
        with contextlib.suppress(self._ray.exceptions.GetTimeoutError):
            self._ray.get(self._actors[span].pid.remote(), timeout=REPLACEMENT_SECONDS)
            return True
        return False

    def _get(self, refs: Any) -> Any:
        try:
            return self._ray.get(refs)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, ShardError):
                raise error.cause from None
            raise


def _num_cores() -> int:
    """Return the cores this process may use: what XLA goes by, unless NPROC is set."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # Not on this platform.
        return os.cpu_count() or 1
