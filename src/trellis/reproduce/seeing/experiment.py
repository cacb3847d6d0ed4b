"""What a robot gains by seeing: `trellis reproduce seeing`.

An arm reaches for a disc that only its camera shows. It trains with camera and joints, with joints
alone, and with joints and the position of the disc (the full state). Finished runs are kept as a
line in `results/seeing/runs`; `--report-only` writes the page from what is there.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trellis import presets
from trellis.reproduce.experiment import TrainingExperiment, look_up, maker
from trellis.reproduce.kept_runs import KeptRuns
from trellis.reproduce.run_plan import RunPlan
from trellis.reproduce.seeing import page
from trellis.reproduce.sweep import Say
from trellis.runs.log import METRICS

ENV = "trellis/SeeingReacher-v0"
EPISODES = 100
"""Number of episodes that every final policy plays."""
SENSES = ("both", "joints", "state")
"""What the policy perceives, by the environment's option `senses`."""
VIDEO = "reaching.mp4"
VIDEO_EPISODES = 8


@dataclass(frozen=True)
class Seeing(TrainingExperiment):
    """A robot that sees, against the same robot without its camera and with the full state."""

    name: ClassVar = "seeing"
    out: Path = Path("results/seeing")
    seeds: int = 3
    runs: Path = Path("runs/seeing")
    parallel: int = 1
    first_seed: int = 0
    """First of the seeds, so that several processes can share the experiment."""
    senses: tuple[str, ...] = SENSES
    """What the policies perceive: both (camera and joints), joints, state."""

    def __post_init__(self):
        super().__post_init__()
        look_up(dict.fromkeys(SENSES), self.senses, "sense")

    def run(self, say: Say) -> None:
        """Train the missing runs, keep each of them, record a video, and write the page."""
        kept = KeptRuns(self.out, EPISODES)
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for senses in self.senses:
                kept.train([self.plan(senses, seed)], 1, say)
        first, video = self.plan("both", 0), self.out / VIDEO
        if first.has_started and first.finished and is_older(video, first.folder / METRICS):
            record_video(first, video)
        self.write_pages()

    def plan(self, senses: str, seed: int) -> RunPlan:
        """Return one run, with one thread and the preset of the environment."""
        config = dataclasses.replace(
            presets.resolve(ENV),
            env_options={"senses": senses},
            seed=seed,
            threads=1,
            eval_every=0,
        )
        return RunPlan(self.runs / f"{senses}-{seed}", config)

    def write_pages(self) -> None:
        """Write seeing.json, the figure and the page from the kept runs."""
        kept = KeptRuns(self.out, EPISODES)
        found = {senses: kept.seeds_of(self.plan(senses, 0).config) for senses in SENSES}
        page.write(self.out, found, maker(self, self.out / "seeing.json"))


def is_older(video: Path, log: Path) -> bool:
    """Return whether a video is missing, or was recorded before the run with this log ended."""
    return not video.is_file() or video.stat().st_mtime < log.stat().st_mtime


def record_video(plan: RunPlan, path: Path) -> None:
    """Record some episodes of a finished run."""
    from trellis.analysis import video
    from trellis.policies.saved import SavedPolicy
    from trellis.training.build import make_env

    batch = make_env(plan.config, 1)
    try:
        actor = SavedPolicy.load(plan.folder).actor()
        video.record(batch, actor, path, episodes=VIDEO_EPISODES, seed=1000)
    finally:
        batch.close()
