"""`trellis eval` and `trellis record`: the policy of a run at work."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from trellis.cli.folder import Flag, Run, config_of
from trellis.cli.messages import asking, say

if TYPE_CHECKING:
    from trellis.runs.trainers import Learner
    from trellis.training.state import TrainState

Best = Annotated[Flag[bool], tyro.conf.arg(help="The policy that did best in evaluations.")]
Last = Annotated[Flag[bool], tyro.conf.arg(help="The policy of the last checkpoint (default).")]


def evaluate(
    run: Run,
    *,
    episodes: int = 20,
    best: Best = False,
    last: Last = False,
    json_: Annotated[Flag[bool], tyro.conf.arg(name="json")] = False,
) -> int:
    """Evaluates the policy of a run, as its settings say: as a rule without exploration noise.

    Args:
        episodes: How many, from seeds that depend on the run's own alone.
        json_: Prints one JSON object and nothing else.
    """
    with asking():
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        trainer, state = _open(run, best, last)
    try:
        result = trainer.evaluate(state, episodes, best=best)
    finally:
        trainer.close()
    values = {
        "mean_return": result.mean_return,
        "std_return": result.std_return,
        "episodes": result.episodes,
        "mean_length": result.mean_length,
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        "env": trainer.config.env,
        "seed": trainer.config.seed,
        "policy": "best" if best and state.best_theta is not None else "last",
        "iteration": state.iteration,
        "steps": state.steps,
        "run": str(run),
    }
    if json_:
        print(json.dumps(values))
    else:
        print(
            f"{values['env']}, {values['policy']} policy of a run of {state.steps:,} steps:"
            f" return {result.mean_return:.1f} ± {result.std_return:.1f} over {result.episodes}"
            f" episodes of {result.mean_length:.0f} steps on average"
        )
    return 0


def record(
    run: Run,
    *,
    out: Path | None = None,
    episodes: int = 1,
    max_steps: int | None = None,
    seed: int = 0,
    best: Best = False,
    last: Last = False,
) -> int:
    """Makes a video of a run's policy, off screen.

    Args:
        out: The MP4 to write; RUN/video.mp4 by default.
        episodes: How many, one after the other.
        max_steps: After which an episode is cut off.
        seed: Of the first episode.
    """
    from trellis.analysis import video

    video.prepare_gl()
    with asking():
        import numpy as np

        from trellis import envs

        path = out or run / "video.mp4"
        if seed < 0:
            raise ValueError(f"seed must be 0 or more, got {seed}")
        video.require(path, episodes=episodes, max_steps=max_steps)
        trainer, state = _open(run, best, last)
        config = trainer.config
        options = {**config.env_options, "render_mode": "rgb_array"}
        env = envs.make(config.env, 1, nthread=1, **options)
    act = trainer.player(state, np.random.default_rng(seed), best=best)
    say(f"Filming {episodes} episode{'s' * (episodes > 1)} of {config.env} …")
    try:
        film = video.record(env, act, path, episodes=episodes, max_steps=max_steps, seed=seed)
    finally:
        env.close()
        trainer.close()
    returns = ", ".join(f"{value:.1f}" for value in film.returns)
    print(f"{film.path}: {film.frames} frames at {film.fps:.4g} a second, return {returns}")
    return 0


def _open(run: Path, best: bool, last: bool) -> tuple["Learner", "TrainState"]:
    """A run's policy, ready to act, without the environments that it was trained in."""
    from trellis.config import SamplingConfig
    from trellis.runs import checkpoint
    from trellis.runs.trainers import make_trainer

    if best and last:
        raise ValueError("--best and --last exclude each other")
    config = config_of(run)
    saved = checkpoint.load_latest(run / checkpoint.CHECKPOINTS)
    trainer = make_trainer(dataclasses.replace(config, sampling=SamplingConfig(1, 1)))
    arrays = {k: v for k, v in saved.arrays.items() if not k.startswith(("env/", "path/"))}
    state = trainer.thaw(arrays, saved.values)
    if best and state.best_theta is None:
        say(f"{run} has no evaluation yet: taking its last policy")
    return trainer, state
