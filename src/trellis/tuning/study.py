"""A study: trials of settings on one environment, kept in a file that can be resumed.

Each trial is a short training with a few evaluations. Optuna's TPE sampler chooses its settings,
and its median pruner stops a trial whose evaluation is below the median of the earlier ones.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis import strict_json
from trellis.config import TrainConfig
from trellis.config.file import config_text, settings_json
from trellis.runs.run import advance, closing
from trellis.runs.trainers import make_trainer
from trellis.safe_files import open_file
from trellis.tuning import spaces

if TYPE_CHECKING:
    import optuna

EVALUATIONS = 5
"""Evaluations per trial, the last one at its end. Its mean return is the value of the trial."""
STARTUP_TRIALS = 5
"""Trials without pruning and with random settings, before the others learn from them."""


NAME = "trellis"
"""Name of the study in its file."""
STUDY_BYTES = 1 << 32
"""Largest file of a study that is read."""
LINE_BYTES = 1 << 16
"""Longest first line of such a file."""


class StudyError(ValueError):
    """A study cannot be used as asked; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What happened to one trial."""

    number: int
    """Number of the trial, from 0."""
    value: float | None
    """Mean return of its last evaluation; None without one."""
    pruned: bool
    """Whether it was stopped early."""
    settings: dict[str, Any]
    """Values of the settings that vary, by full name."""


class Study:
    """Trials of settings for one environment.

    Args:
        path: Journal file. It is created, or the study in it is resumed.
        config: Settings that the trials change. Its `total_steps` are those of the best settings.
        steps: Simulator steps per trial.
        parts: Parts of the settings that vary.
        evaluations: Evaluations per trial.
    """

    def __init__(
        self,
        path: str | Path,
        config: TrainConfig,
        *,
        steps: int,
        parts: Sequence[str] = ("step", "estimation"),
        evaluations: int = EVALUATIONS,
    ):
        self.path, self.config, self.parts = Path(path), config, tuple(parts)
        self.steps, self._evaluations = steps, evaluations
        for name, value in {"steps": steps, "evaluations": evaluations}.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        unknown = sorted(set(parts) - set(spaces.PARTS))
        if unknown or not parts:
            raise ValueError(f"parts must be some of {', '.join(spaces.PARTS)}, got {parts}")
        if config.step.is_search:
            raise ValueError(f"method must be an update rule to tune, got {config.step.method!r}")
        self._study = self._open()

    @property
    def finished(self) -> int:
        """Number of trials that ended, pruned ones included."""
        return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in self._trials)

    @property
    def best(self) -> TrialResult | None:
        """Best trial that was not pruned; None if there is none yet."""
        whole = [trial for trial in self._trials if trial.state.name == "COMPLETE"]
        results = [TrialResult(t.number, t.value, False, dict(t.params)) for t in whole]
        return max(
            results,
            key=lambda result: -math.inf if result.value is None else result.value,
            default=None,
        )

    @property
    def best_config(self) -> TrainConfig:
        """Settings of the best trial, with the steps and the seed that the study was made with."""
        import optuna

        best = self.best
        if best is None:
            raise StudyError(f"{self.path} has no finished trial yet; run more trials")
        return spaces.suggest(optuna.trial.FixedTrial(best.settings), self.config, self.parts)

    def write_best(self, path: str | Path) -> Path:
        """Write the best settings to a file for `trellis train --config`, and return its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config_text(settings_json(self.best_config)), encoding="utf-8")
        return path

    def run(
        self, trials: int, on_trial: Callable[[TrialResult], None] = lambda result: None
    ) -> None:
        """Run trials until this many have ended, those of earlier calls included.

        Args:
            trials: Total number of trials.
            on_trial: Function called after each trial.
        """
        import optuna

        while self.finished < trials:
            trial = self._study.ask()
            try:
                value = self._train(trial)
                done = self._study.tell(trial, value)
            except optuna.TrialPruned:
                done = self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            except BaseException:  # It counts as not run: a resumed study runs another one.
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
                raise
            pruned = done.state.name == "PRUNED"
            on_trial(TrialResult(done.number, done.value, pruned, dict(done.params)))

    @property
    def _trials(self) -> "list[optuna.trial.FrozenTrial]":
        return self._study.get_trials(deepcopy=False)

    def _open(self) -> "optuna.Study":
        """Open or create the study, and check that it is of the same task."""
        optuna = _require_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        is_new = not _is_study(self.path)
        if is_new:  # Before the file is made: what fails here leaves nothing behind.
            with closing(make_trainer(self.config)) as trainer:
                trainer.start()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        storage = JournalStorage(JournalFileBackend(str(self.path)))
        about = {
            "env": self.config.env,
            "steps": self.steps,
            "parts": list(self.parts),
            "evaluations": self._evaluations,
            "settings": settings_json(self.config),
        }
        # Evaluations count from 1, and the first one ends no trial.
        pruner = optuna.pruners.MedianPruner(STARTUP_TRIALS, n_warmup_steps=2)
        named: dict[str, Any] = {"storage": storage, "study_name": NAME, "pruner": pruner}
        try:
            if is_new:
                study = optuna.create_study(direction="maximize", **named)
            else:
                study = optuna.load_study(**named)
        except (ValueError, LookupError, TypeError) as error:
            raise StudyError(
                f"{self.path} is not the file of a study ({error}); choose another --study"
            ) from error
        # Another stream after every interruption, so that no trial is repeated.
        done = len(study.get_trials(deepcopy=False))
        seed = (self.config.seed + done) % 2**32
        study.sampler = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed)
        if is_new:
            for name, value in about.items():
                study.set_user_attr(name, value)
            study.enqueue_trial(spaces.defaults(self.config, self.parts))
        for name, value in about.items():
            there = study.user_attrs.get(name)
            if there != value:
                shown = "" if name == "settings" else f" ({there} there, {value} here)"
                raise StudyError(
                    f"{self.path} holds a study with other {name}{shown}; choose another --study"
                )
        for trial in study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING":  # Its process was killed.
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        return study

    def _train(self, trial: "optuna.Trial") -> float:
        """Train with the settings of a trial and return the mean return of the last evaluation."""
        import optuna

        config = spaces.suggest(trial, self.config, self.parts)
        config = dataclasses.replace(config, total_steps=self.steps, max_iterations=None)
        values: list[float] = []

        def report(_: object, metrics: dict[str, Any]) -> None:
            value = metrics.get("eval_return_mean")
            if value is None:
                return
            values.append(value)
            # By training steps: trials with large batches are evaluated less often.
            trial.report(value, step=metrics["steps"] * self._evaluations // self.steps)
            # At the last evaluation nothing is left to save.
            if metrics["steps"] < self.steps and trial.should_prune():
                raise optuna.TrialPruned

        with closing(make_trainer(config)) as trainer:
            advance(
                trainer,
                trainer.start(),
                lambda state: config.is_over(state.iteration, state.steps),
                [report],
                eval_every=max(1, self.steps // self._evaluations),
            )
        return values[-1]


def _is_study(path: Path) -> bool:
    """Return whether a file exists and is a journal of Optuna; raise for any other file.

    Optuna itself would append to any file.
    """
    if not path.exists() or not path.stat().st_size:
        return False
    real = path.resolve()
    with open_file(real.parent, real.name, limit=STUDY_BYTES) as file:
        line = file.readline(LINE_BYTES)
    try:
        first = strict_json.parse(line)
    except ValueError as error:
        raise StudyError(
            f"{path} is not the file of a study ({error}); choose another --study"
        ) from error
    if not isinstance(first, dict) or "op_code" not in first:
        raise StudyError(f"{path} is not the file of a study; choose another --study")
    return True


def _require_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "tuning needs Optuna; install it with: pip install 'trellis-rl[tune]'"
        ) from error
    return optuna
