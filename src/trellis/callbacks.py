"""Callbacks for `TRPO.learn` and `runs.run.train`: stop, evaluate, save, show and track.

A callback is any function of a state and its metrics that is called after each iteration. There is
one rule: False stops training. An object may also have `start(run)`, called before the first
iteration with a `RunStart`, and `close()`, called after the last one. Callbacks are called in the
order in which they are given, and one may add to the metrics that the next one gets.

Example:
    >>> from trellis import TRPO
    >>> from trellis.callbacks import Evaluate, StopOnReturn
    >>> agent = TRPO("CartPole-v1", seed=0)
    >>> callbacks = [Evaluate(every=8_000, episodes=5), StopOnReturn(150)]
    >>> agent.learn(200_000, callbacks, progress_bar=False).steps < 200_000
    True
"""

import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trellis import envs
from trellis.policies.saved import SavedPolicy
from trellis.runs.callback import Callback, RunStart
from trellis.runs.progress import Progress as Display
from trellis.runs.progress import make_progress
from trellis.runs.run import crossed
from trellis.runs.run_state import save_agent
from trellis.runs.trackers import TRACKERS, Tracker, require_tracker
from trellis.safe_files import open_folder, remove
from trellis.training.evaluation import Evaluation, Evaluator
from trellis.training.state import TrainState

__all__ = [
    "Callback",
    "Checkpoint",
    "Evaluate",
    "Progress",
    "RunStart",
    "StopOnReturn",
    "Track",
    "TrainingCallback",
]


class TrainingCallback:
    """Base class of callbacks with a start and an end; override what you need."""

    def start(self, run: RunStart) -> None:
        """Prepare for the first iteration.

        Args:
            run: Trainer, first state, settings and run folder.
        """

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> bool | None:
        """Look at an iteration. Return False to stop training.

        Args:
            state: State after the iteration.
            metrics: Its metrics. Numbers and words that you add go to the log.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Clean up after the last iteration, also after an error."""


class StopOnReturn(TrainingCallback):
    """Stops training when the return reaches a threshold.

    Args:
        threshold: Return that is enough.
        training: Whether to look at training episodes instead of evaluations. Evaluations come
            from `eval_every` of `learn`, or from `Evaluate` before this callback.
        patience: Number of times in a row that the return must reach the threshold.
    """

    def __init__(self, threshold: float, *, training: bool = False, patience: int = 1):
        _require_count("patience", patience)
        self.threshold, self.patience = threshold, patience
        self._metric = "episode_return_mean" if training else "eval_return_mean"
        self._reached = 0

    def start(self, run: RunStart) -> None:
        """Forget the returns of an earlier training."""
        self._reached = 0

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> bool | None:
        """Stop if the return was high enough often enough."""
        value = metrics.get(self._metric)
        if value is not None:
            self._reached = self._reached + 1 if value >= self.threshold else 0
        return self._reached < self.patience


class Evaluate(TrainingCallback):
    """Evaluates the policy every few steps and adds the result to the metrics.

    `learn(eval_every=…)` does the same in the training environment. This callback can use another
    one, such as a harder variant, and save the best policy of that.

    Args:
        every: Simulator steps between evaluations.
        episodes: Episodes per evaluation.
        env: Environment to evaluate in, an id or a callable. Default: that of training.
        name: Start of the metrics' names: `eval` gives `eval_return_mean`.
        save_best: Folder for the agent with the best evaluation, for `TRPO.load`. Default: none.
    """

    def __init__(
        self,
        every: int,
        episodes: int = 10,
        *,
        env: str | Callable[..., Any] | None = None,
        name: str = "eval",
        save_best: str | Path | None = None,
    ):
        _require_count("every", every)
        _require_count("episodes", episodes)
        self.every, self.episodes, self.name = every, episodes, name
        self.history: list[tuple[int, Evaluation]] = []
        """Steps and result of every evaluation so far."""
        self.best: SavedPolicy | None = None
        """Policy with the highest mean return so far."""
        self._env, self._save_best = env, None if save_best is None else Path(save_best)
        self._evaluator: Evaluator | None = None

    def start(self, run: RunStart) -> None:
        """Remember the trainer, which evaluates in the training environment."""
        self._run, self._steps = run, run.state.steps
        self._best_return = max((e.mean_return for _, e in self.history), default=float("-inf"))
        env = self._env
        if env is not None:
            self._evaluator = Evaluator(lambda count: envs.make(env, count))

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> None:
        """Evaluate if it is time."""
        before, self._steps = self._steps, state.steps
        if not crossed(before, state.steps, self.every):
            return
        trainer = self._run.trainer
        if self._evaluator is None:
            result = trainer.evaluate(state, self.episodes)
        else:
            result = self._evaluator.evaluate(trainer.policy_of(state), self.episodes)
        self.history.append((state.steps, result))
        metrics[f"{self.name}_return_mean"] = result.mean_return
        metrics[f"{self.name}_return_std"] = result.std_return
        metrics[f"{self.name}_length_mean"] = result.mean_length
        if result.mean_return > self._best_return:
            self._best_return, self.best = result.mean_return, trainer.policy_of(state)
            if self._save_best is not None:
                _save(self._save_best, self._run, state)

    def close(self) -> None:
        """Close the environments of the evaluations."""
        if self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None


class Checkpoint(TrainingCallback):
    """Saves the agent every few steps, each time to a new folder `steps-N` for `TRPO.load`.

    A run folder has checkpoints of its own, of which the newest stay. This callback keeps more.

    Args:
        folder: Folder that gets the folders of the agents.
        every: Simulator steps between agents.
        keep: Number of agents to keep. Default: all.
    """

    def __init__(self, folder: str | Path, every: int = 100_000, *, keep: int | None = None):
        _require_count("every", every)
        if keep is not None:
            _require_count("keep", keep)
        self.folder, self.every = Path(folder), every
        self.saved: deque[Path] = deque()
        """Folders that exist, the oldest first."""
        self._keep = keep

    def start(self, run: RunStart) -> None:
        """Remember the trainer, which writes the agents."""
        self._run, self._steps = run, run.state.steps

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> None:
        """Save the agent if it is time."""
        before, self._steps = self._steps, state.steps
        if not crossed(before, state.steps, self.every):
            return
        path = self.folder / f"steps-{state.steps:010d}"
        _save(path, self._run, state)
        self.saved.append(path)
        while self._keep is not None and len(self.saved) > self._keep:
            old = self.saved.popleft()
            with open_folder(old.parent) as parent:
                remove(old.name, dir_fd=parent)


class Progress(TrainingCallback):
    """Shows progress, for loops that show none: a bar on a terminal, or lines.

    `TRPO.learn` and `trellis train` have one of their own.

    Args:
        log_interval: Iterations between two lines, which replace the bar.
    """

    def __init__(self, log_interval: int | None = None):
        if log_interval is not None:
            _require_count("log_interval", log_interval)
        self._log_interval, self._display = log_interval, Display()

    def start(self, run: RunStart) -> None:
        """Show the bar."""
        begun = (run.state.iteration, run.state.steps)
        self._display = make_progress(run.config, begun, log_interval=self._log_interval)

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> None:
        """Show the metrics of an iteration."""
        self._display.update(metrics)

    def close(self) -> None:
        """Show the last metrics and release the terminal."""
        self._display.close()


class Track(TrainingCallback):
    """Sends settings and metrics to an experiment tracker.

    If the tracker fails during training, a warning says so, and training continues without it.

    Args:
        tracker: `wandb`, `mlflow` or `tensorboard`.
        name: Name of the record. Default: that of the run folder, or environment and seed.
        **options: Arguments for the tracker: `out`, the folder of TensorBoard events.
    """

    def __init__(self, tracker: str, name: str | None = None, **options: Any):
        require_tracker(tracker)
        self._kind, self._name, self._options = tracker, name, options
        self._tracker: Tracker | None = None

    def start(self, run: RunStart) -> None:
        """Open the record."""
        config = run.config
        name = run.folder.name if run.folder else f"{config.env}-{config.seed}".replace("/", "-")
        make = TRACKERS[self._kind]
        self._tracker = make(config, run.folder, self._name or name, **self._options)

    def __call__(self, state: TrainState, metrics: dict[str, Any]) -> None:
        """Send the metrics of an iteration."""
        self._try(lambda tracker: tracker.log(metrics))

    def close(self) -> None:
        """Finish the record."""
        self._try(lambda tracker: tracker.close())
        self._tracker = None

    def _try(self, use: Callable[[Tracker], None]) -> None:
        """Use the tracker, unless it has failed. Trackers raise errors of any kind."""
        if self._tracker is None:
            return
        try:
            use(self._tracker)
        except Exception as error:
            self._tracker = None
            warnings.warn(
                f"{self._kind} failed ({type(error).__name__}: {error}); training continues"
                " without it",
                stacklevel=2,
            )


def _save(folder: Path, run: RunStart, state: TrainState) -> None:
    """Save the agent of a state."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    arrays, values = run.trainer.to_checkpoint(state)
    save_agent(folder, run.trainer.config, state.iteration, arrays, values)


def _require_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
