"""Implements a group of Ray workers that hold the shards of a run, and replaces lost workers.

Every worker is an actor with the shards of one node of the reduction tree. A placement group
distributes the workers over machines. A call goes to all workers at once and their answers are
merged in the order of the tree, so the number of workers changes no bit of the result.

Any worker may die at any time. The group keeps the calls that changed the shards since their last
snapshot. A replacement restores the snapshot, replays those calls and repeats the pending one.
Random streams depend on seed, iteration and shard only, so the answer is the one that the lost
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
from trellis.cores import usable_cores
from trellis.training.reduction import Span, divide, reduce_tree

logger = logging.getLogger(__name__)

PLACEMENT_SECONDS = 15.0
"""Time limit for getting CPUs, which other jobs may be using."""
REPLACEMENT_SECONDS = 15.0
"""Time limit for a replacement on the reserved CPUs; after that it starts anywhere."""
MAX_LOSSES = 5
"""Number of replacements for one call; if more workers die, the run fails."""
INLINE_BYTES = 100 << 10
"""Size in bytes above which a call goes through Ray's object store, once for all workers."""

Held = TypeVar("Held")
Answer = TypeVar("Answer")


class WorkerGroup(Generic[Held]):
    """Ray workers, each of which holds the shards of one span.

    Args:
        make: Function that builds the object of a worker from the settings and its span.
        config: Settings of the run.
        cluster: "local", "auto", or the address of the cluster's head.
        workers: Number of workers; by default one per `config.threads` CPUs of the cluster.
        restore: Function that returns the call that restores the shards of a new worker.
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
                "a run of one shard cannot be divided over a cluster: start it with --shards N"
            )
        part = dataclasses.replace(config, threads=self._cpus)
        self._make, self._restore = cloudpickle.dumps(functools.partial(make, part)), restore
        self._journal: list[bytes] = []
        self._actors: dict[Span, Any] = {}
        self._placement: Any = None
        self.losses = 0
        """Number of workers that were lost and replaced so far."""
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
        """Apply a function to the object of every worker and merge the answers.

        Args:
            what: Name of the call, for messages.
            call: Function to apply.
            changes_shards: Whether a replacement must replay the call.
        """
        payload = cloudpickle.dumps(call)
        sent = self._ray.put(payload) if len(payload) > INLINE_BYTES else payload
        asked = {span: self._send(span, what, sent) for span in self.spans}
        answers = {span: self._answer(span, ref, what, sent) for span, ref in asked.items()}
        if changes_shards:
            self._journal.append(payload)
        return reduce_tree((0, self._shards), answers)

    def saved(self) -> None:
        """Forget past calls, because the newest snapshot includes their effects."""
        self._journal.clear()

    def close(self) -> None:
        """Stop the workers, and Ray if it was started for them."""
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
                f" {PLACEMENT_SECONDS:.0f} seconds; {free:g} CPUs of the cluster are free. Wait"
                " until other jobs end, or use fewer --workers (the result is the same)"
            )

    def _start(self, span: Span, *, anywhere: bool = False) -> Any:
        """Start a worker for this span, on its reserved CPUs or anywhere.

        A worker must sum in the same order as this process, to give the same bits. It therefore
        gets the same number of XLA threads, and one thread for NumPy's products.
        """
        environment = {"NPROC": str(usable_cores())}
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
        """Send a pickled call, or a reference to one, to a worker; `what` is its name."""
        return self._actors[span].apply.remote(call)

    def _answer(self, span: Span, ref: Any, what: str, call: Any) -> Any:
        """Return the answer of a worker, or of its replacement if the worker is lost."""
        errors = self._ray.exceptions
        lost = (
            errors.RayActorError,
            errors.NodeDiedError,
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.OutOfMemoryError,  # Ray ends workers before memory runs out.
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
            f" {span[1] - 1}. Check the memory of the machine and the environment: {last}"
        )

    def _replace(self, span: Span) -> None:
        """Start a new worker, restore its shards and replay the calls that changed them."""
        self._kill(span)
        built = self._start(span)
        if not self._came_up(span):
            logger.warning(
                "No CPUs are free for the replacement; it shares those of other workers, which is"
                " slower."
            )
            self._kill(span)
            built = self._start(span, anywhere=True)
        # An actor runs its calls in the order in which they are sent.
        actor = self._actors[span]
        calls = list(self._journal)
        if self._restore is not None:
            calls.insert(0, cloudpickle.dumps(self._restore()))
        self._get([built, *(actor.apply.remote(call) for call in calls)])

    def _kill(self, span: Span) -> None:
        with contextlib.suppress(Exception):
            self._ray.kill(self._actors[span])

    def _came_up(self, span: Span) -> bool:
        """Return whether the new worker runs; if its machine is lost, so are its reserved CPUs."""
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
