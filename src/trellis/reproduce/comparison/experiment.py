"""The comparison of Section 8.1: `trellis reproduce comparison`, `cartpole` and `locomotion`.

Trains the missing runs, chooses the swept settings and compares the methods. `plans.py` has the
runs as data, and `gait.py` evaluates policies. `scores.py` turns runs into numbers, `findings.py`
and `claims.py` turn numbers into verdicts. `kept_logs.py`, `table.py`, `page.py` and `figure.py`
write them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trellis.analysis.compare import training_return
from trellis.reproduce.comparison import gait, plans
from trellis.reproduce.comparison.findings import OURS, TRPO
from trellis.reproduce.comparison.kept_logs import Role
from trellis.reproduce.comparison.kept_runs import (
    KeptRun,
    all_logs,
    as_kept,
    finish_method,
    keep_run,
    log_of,
)
from trellis.reproduce.comparison.plans import METHODS, STANDARD, TASKS, ComparedTask, Method
from trellis.reproduce.comparison.scores import method_record, sweep_record
from trellis.reproduce.comparison.table import read_tasks, refresh, refuse_less, write_task
from trellis.reproduce.experiment import TrainingExperiment, command, look_up, require_scale
from trellis.reproduce.files import ResultsError, made_by
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.sweep import Say, execute


@dataclass(frozen=True)
class Locomotion(TrainingExperiment):
    """Figure 4 on swimmer, hopper and walker: the methods of Sec. 8.1 with the paper's settings."""

    name: ClassVar = "locomotion"
    out: Path = Path("results/comparison")
    seeds: int = 5
    runs: Path = Path("runs/comparison")
    tasks: tuple[str, ...] = ("swimmer", "hopper", "walker")
    """Tasks to run: swimmer, hopper, walker."""
    methods: tuple[str, ...] = STANDARD
    """Methods to compare. Also available: trpo-vine-of-states, trpo-vine-bootstrap and
    trpo-vine-short."""
    scale: float = 1.0
    """Steps per iteration as a part of the paper's, in (0, 1]. The number of iterations stays."""
    vine_scale: float | None = None
    """Scale of the vine methods. Default: the scale of the other methods."""
    again: bool = False
    """Train runs again whose logs are kept in the results."""

    def __post_init__(self):
        super().__post_init__()
        for method in self._methods:
            require_scale(self.scale_of(method))
            if method.name == "max-kl" and self.tasks != ("cartpole",):
                raise ValueError(
                    "max-kl solves Eq. 11 for the few parameters of the cart-pole only: use"
                    " max-kl-step"
                )
            if method.vine and method.optional and "cartpole" in self.tasks:
                raise ValueError(
                    f"{method.name} needs the steps of Table 2, which has no column for the"
                    " cart-pole: use trpo-vine"
                )
        look_up(TASKS, self.tasks, "task")

    @property
    def _methods(self) -> list[Method]:
        return look_up(METHODS, self.methods or STANDARD, "method")

    @property
    def _pairs(self) -> list[tuple[ComparedTask, Method]]:
        return [(TASKS[task], method) for task in self.tasks for method in self._methods]

    def scale_of(self, method: Method) -> float:
        """Return the scale of a method."""
        return self.vine_scale if method.vine and self.vine_scale is not None else self.scale

    def swept(self, task: ComparedTask, method: Method) -> list[RunPlan]:
        """Return one run per value of the swept setting; none if the method has no such setting."""
        values = plans.swept_values(task, method) if method.swept else []
        seed = [plans.SWEEP_SEED]
        return [plan for value in values for plan in self._plans(task, method, seed, value)]

    def compared(self, task: ComparedTask, method: Method, value: float | None) -> list[RunPlan]:
        """Return one run per seed, with the `value` that the sweep chose."""
        return self._plans(task, method, range(self.seeds), value)

    def _plans(
        self, task: ComparedTask, method: Method, seeds: Sequence[int], value: float | None
    ) -> list[RunPlan]:
        scale, name, step = self.scale_of(method), method.name, {}
        if method.swept and value is not None:
            name, step = f"{name}-{value:g}", {method.swept: value}
        stem = self.runs / plans.folder(task, scale) / name
        planned = self.plan_seeds(stem, plans.settings(task, method, scale, **step), seeds)
        if self.again:
            return planned
        role = "swept" if seeds == [plans.SWEEP_SEED] else "compared"
        logs = all_logs(self.out, task.name, method.name)
        return [plan if plan.has_started else as_kept(plan, role, logs) for plan in planned]

    def run(self, say: Say) -> None:
        """Train the missing runs, and write the results of each task."""
        for task, method in self._pairs:
            refuse_less(self.out, task.name, method, self.scale_of(method), self.seeds)
        self._train(say)
        for name in self.tasks:
            say(f"Evaluating the final policies of {name}")
            write_task(self.out, name, self._results(TASKS[name], say))

    def write_pages(self) -> None:
        """Write the figures, tables, claims and the page from the JSON files in the folder."""
        if not read_tasks(self.out):
            raise ResultsError(
                f"{self.out} has no results of a task: leave out --report-only to train, or name"
                " the folder with --out"
            )
        refresh(self.out)

    def _train(self, say: Say) -> None:
        """Train the sweeps and the methods without one, then the methods with the chosen values."""
        roles: dict[Path, tuple[str, str, Role]] = {}
        first: list[RunPlan] = []
        for task, method in self._pairs:
            swept = self.swept(task, method)
            found = swept or self.compared(task, method, None)
            role: Role = "swept" if swept else "compared"
            roles |= {plan.folder: (task.name, method.name, role) for plan in found}
            first += found

        def keep_ended(plan: RunPlan) -> None:
            task, method, role = roles[plan.folder]
            score = self._score(plan) if role == "compared" else None
            keep_run(self.out, task, method, log_of(plan, role, score))

        execute(first, self.parallel, say, keep_ended)
        winners: list[RunPlan] = []
        for task, method in self._pairs:
            value = self._choose(task, method)
            if value is not None:
                say(f"{task.title}, {method.label}: the best {method.swept} is {value:g}")
                found = self.compared(task, method, value)
                roles |= {plan.folder: (task.name, method.name, "compared") for plan in found}
                winners += found
        if winners:
            execute(winners, self.parallel, say, keep_ended)

    def _score(self, plan: RunPlan) -> dict[str, Any]:
        """Return the scores of the last policy of a run: the kept ones, or new ones."""
        kept = plan.log.score if isinstance(plan, KeptRun) else None
        return dict(kept) if kept else gait.evaluate(plan.folder).summary()

    def _choose(self, task: ComparedTask, method: Method) -> float | None:
        """Return the value with the best return at the end of training; None without a sweep."""
        if method.swept is None:
            return None
        best = max(self.swept(task, method), key=lambda plan: training_return(plan.rows))
        return float(getattr(best.config.step, method.swept))

    def _results(self, task: ComparedTask, say: Say) -> dict[str, Any]:
        """Return the contents of a task's file; write its logs and videos."""
        methods, sweeps, videos = {}, {}, {}
        for method in self._methods:
            value = self._choose(task, method)
            runs = self.compared(task, method, value)
            scores = [self._score(plan) for plan in runs]
            methods[method.name] = {
                **method_record(task, method, self.scale_of(method), runs, scores, value),
                **made_by(command(self, tasks=(task.name,))),
            }
            pairs = zip(runs, scores, strict=True)
            logs = [log_of(plan, "compared", score) for plan, score in pairs]
            if value is not None:
                swept = self.swept(task, method)
                sweeps[method.name] = sweep_record(task, method, swept, value)
                logs += [log_of(plan, "swept", None) for plan in swept]
            finish_method(self.out, task.name, method.name, logs)
            if task.moves and method.name in (*TRPO, *OURS):
                name = f"{task.name}-{method.name}.mp4"
                failure = self._record(_typical(runs, scores), self.out / name)
                if failure is None:
                    videos[method.name] = name
                else:
                    say(f"No video of {task.name}, {method.label}: {failure}")
        return {
            "env": task.env,
            "iterations": plans.ITERATIONS,
            "standing_reward": task.standing_reward,
            "methods": methods,
            "sweeps": sweeps,
            "videos": videos,
        }

    def _record(self, plan: RunPlan, path: Path) -> str | None:
        """Record a video of a run, unless only its log is left; return why there is none."""
        if not isinstance(plan, KeptRun):
            return gait.record_video(plan.folder, path)
        return None if path.is_file() else "only the log of the typical run is kept"


@dataclass(frozen=True)
class CartPoleComparison(Locomotion):
    """Figure 4 on the cart-pole: the methods of Sec. 8.1 with the paper's settings."""

    name: ClassVar = "cartpole"
    tasks: tuple[str, ...] = field(default=("cartpole",), init=False)
    methods: tuple[str, ...] = (*STANDARD, "max-kl")
    """Methods to compare."""


@dataclass(frozen=True)
class Comparison(Locomotion):
    """Figure 4: the methods of Sec. 8.1 on all four tasks, with the paper's settings."""

    name: ClassVar = "comparison"
    tasks: tuple[str, ...] = tuple(TASKS)
    """Tasks to run: cartpole, swimmer, hopper, walker."""


def _typical(runs: Sequence[RunPlan], scores: Sequence[Mapping[str, Any]]) -> RunPlan:
    """Return the run with the median return; the better one of two."""
    order = sorted(range(len(runs)), key=lambda index: scores[index]["mean_return"])
    return runs[order[len(order) // 2]]
