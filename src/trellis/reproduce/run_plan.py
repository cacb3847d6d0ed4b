"""One planned run of an experiment: its folder, its settings and its progress."""

from dataclasses import dataclass

from trellis.analysis.logged_run import LoggedRun
from trellis.checkpoint_format import CHECKPOINTS, CheckpointError, load_latest, newest_iteration
from trellis.runs.folder import CONFIG, RunFolderError, read_config, require_same_run
from trellis.runs.provenance import UNKNOWN


@dataclass(frozen=True)
class RunPlan(LoggedRun):
    """One run of an experiment, which may not have started yet."""

    @property
    def has_started(self) -> bool:
        """Whether the folder holds a run."""
        return (self.folder / CONFIG).is_file()

    @property
    def progress(self) -> float:
        """Finished part of the run, from 0 to 1."""
        rows = self.rows if self.has_started else []
        if not rows:
            return 0.0
        iteration, steps = rows[-1]["iteration"], rows[-1]["steps"]
        config = read_config(self.folder)
        # A run resumes from its checkpoint, which may be older than the log.
        saved = newest_iteration(self.folder / CHECKPOINTS) == iteration
        if saved and config.is_over(iteration, steps):
            return 1.0
        by_iteration = iteration / config.max_iterations if config.max_iterations else 0.0
        return min(0.999, max(by_iteration, steps / config.total_steps))

    @property
    def finished(self) -> bool:
        """Whether the run has all its iterations and their checkpoint."""
        return self.progress == 1.0

    @property
    def commit(self) -> str:
        """Commit of the code that wrote the last checkpoint, or "unknown"."""
        try:
            return load_latest(self.folder / CHECKPOINTS).versions.get("commit", UNKNOWN)
        except CheckpointError:
            return UNKNOWN

    @property
    def threads(self) -> int:
        """Simulator threads of the run."""
        return read_config(self.folder).threads

    def check(self) -> None:
        """Raise a RunFolderError if the folder holds a run with other settings."""
        if not self.has_started:
            return
        require_same_run(self.folder, self.config)
        found = read_config(self.folder)
        for name in ("total_steps", "max_iterations"):
            there, planned = getattr(found, name), getattr(self.config, name)
            if there != planned:
                raise RunFolderError(
                    f"{self.folder} holds a run with {name} {there}, not {planned}: move it away,"
                    " or choose another folder with --runs"
                )
