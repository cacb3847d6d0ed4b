"""`trellis eval`, `record`, `plot` and `compare`: use the results of runs."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from trellis.cli.consent import Import, TrustEnv, allow_env, import_modules
from trellis.cli.errors import say, usage_errors
from trellis.cli.options import unset

if TYPE_CHECKING:
    from trellis.config import TrainConfig
    from trellis.envs.batch import BatchEnv
    from trellis.policies.saved import SavedPolicy

RUN_HELP = "Run folder, or pretrained/ID for a policy that comes with Trellis."
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help=RUN_HELP)]
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help="Run folder.")]
Runs = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN [RUN ...]", help="Run folders.", help_behavior_hint="(required)"),
]
Best = Annotated[bool, tyro.conf.arg(help="Use the policy with the best evaluation.")]
Last = Annotated[
    bool,
    tyro.conf.arg(help="Use the policy of the last checkpoint.", help_behavior_hint="(default)"),
]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print one JSON object and nothing else.")]


def evaluate(
    run: Run,
    *,
    episodes: int = 20,
    best: Best = False,
    last: Last = False,
    json_: Json = False,
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Evaluate the policy of a run.

    Actions are the most probable ones, or sampled if the run has --eval-drawn.

    Args:
        episodes: Number of episodes. Their seeds depend only on the seed of the run.
    """
    with usage_errors():
        from trellis.training.evaluation import Evaluator

        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        policy = open_policy(run, best, last)
        import_modules(import_)
        allow_env(policy.config.env, policy.config.env_options, run, trust_env=trust_env)
        env = make_env_of(policy, episodes, nthread=policy.config.threads)
    with contextlib.closing(env):
        result = Evaluator(lambda _: env).evaluate(policy, episodes)
    values = {
        "mean_return": result.mean_return,
        "std_return": result.std_return,
        "episodes": result.episodes,
        "mean_length": result.mean_length,
        "returns": result.returns.tolist(),
        "lengths": result.lengths.tolist(),
        "env": policy.config.env,
        "seed": policy.config.seed,
        "policy": "best" if policy.is_best else "last",
        "iteration": policy.iteration,
        "steps": policy.steps,
        "run": str(run),
    }
    if json_:
        print(json.dumps(values))
    else:
        print(
            f"{values['env']}: return {result.mean_return:.1f} ± {result.std_return:.1f}"
            f" over {result.episodes} episodes (mean length {result.mean_length:.0f},"
            f" {values['policy']} policy, {policy.steps:,} training steps)"
        )
    return 0


def record(
    run: Run,
    *,
    out: Annotated[Path | None, unset("RUN/video.mp4", metavar="FILE")] = None,
    episodes: int = 1,
    max_steps: Annotated[int | None, unset("no maximum")] = None,
    seed: int = 0,
    best: Best = False,
    last: Last = False,
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Record a video of the policy of a run.

    Rendering needs no display. `trellis doctor` checks whether it works.

    Args:
        out: MP4 file to write.
        episodes: Number of episodes, one after the other.
        max_steps: Maximum steps per episode.
        seed: Seed of the first episode.
    """
    from trellis.analysis import video

    video.prepare_gl()
    with usage_errors():
        import numpy as np

        path = out or output_path(run, "video.mp4")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        video.check_request(path, episodes=episodes, max_steps=max_steps)
        policy = open_policy(run, best, last)
        import_modules(import_)
        allow_env(policy.config.env, policy.config.env_options, run, trust_env=trust_env)
        env = open_to_render(policy)
    act = policy.actor(np.random.default_rng(seed))
    say(f"Recording {episodes} episode{'s' * (episodes > 1)} of {policy.config.env} …")
    with contextlib.closing(env):
        made = video.record(env, act, path, episodes=episodes, max_steps=max_steps, seed=seed)
    returns = ", ".join(f"{value:.1f}" for value in made.returns)
    print(f"{made.path}: {made.frames} frames at {made.fps:.4g} a second, return {returns}")
    return 0


def plot(
    runs: Runs,
    *,
    out: Annotated[Path | None, unset("curves with the ending of --format", metavar="FILE")] = None,
    format_: Annotated[Literal["auto", "png", "svg", "pdf"], tyro.conf.arg(name="format")] = "auto",
    x: Literal["steps", "seconds"] = "steps",
    evaluations: bool = False,
) -> int:
    """Plot the learning curves of runs.

    Runs that differ only in their seed become one mean with a 95% band.

    Args:
        out: Image file to write.
        format_: Format of the image. auto: the ending of --out, or png.
        x: Unit of the horizontal axis: simulator steps, or seconds of training.
        evaluations: Plot evaluations instead of training episodes.
    """
    with usage_errors():
        from trellis.analysis import curves
        from trellis.runs.seeds import expanded

        y = "eval_return_mean" if evaluations else "episode_return_mean"
        print(curves.plot(expanded(runs), _image(out, format_), x=x, y=y))
    return 0


def _image(out: Path | None, format_: str) -> Path:
    """Return the path of an image whose ending is its format."""
    path = out or Path("curves")
    ending = path.suffix.removeprefix(".").lower()
    if format_ != "auto" and ending not in ("", format_):
        raise ValueError(
            f"--out {path} and --format {format_} contradict each other; leave out --format"
        )
    return path if ending else path.with_suffix(f".{'png' if format_ == 'auto' else format_}")


def compare(
    runs: Runs,
    *,
    training: bool = False,
    format_: Annotated[
        Literal["text", "markdown", "csv", "json"], tyro.conf.arg(name="format")
    ] = "text",
    json_: Json = False,
) -> int:
    """Compare the final returns of runs, with statistics.

    Shows interquartile means, 95% intervals and the probability of improvement.

    Args:
        training: Use training episodes of the last tenth of a run, not its last evaluation.
        format_: Format of the tables. csv has one row per group; json has everything.
    """
    with usage_errors():
        from trellis.analysis import tables
        from trellis.analysis.compare import compare_runs
        from trellis.runs.seeds import expanded

        if json_ and format_ not in ("text", "json"):
            raise ValueError(f"--json and --format {format_} exclude each other; leave out one")
        found = compare_runs(expanded(runs), training=training)
    tables.show(found, "json" if json_ else format_)
    return 0


def config_of(run: Path) -> "TrainConfig":
    """Return the settings of a run whose environment has an id, so that it can be created again."""
    from trellis.policies.pretrained import find_run
    from trellis.runs.folder import read_config

    if find_run(run) != run:
        raise ValueError(
            f"{run} is a policy without the state of its training: give a run folder. eval, record,"
            " export and share take this policy"
        )
    config = read_config(run)
    require_id(config.env, run)
    return config


def require_id(env: str, source: Path) -> None:
    """Raise a ValueError if the environment of a run or file is a Python callable."""
    from trellis.agent_inputs import CALLABLE_PREFIX

    if env.startswith(CALLABLE_PREFIX):
        raise ValueError(
            f"{source} uses the environment {env}, which the command line cannot create; load it"
            " in Python with TRPO.load(path, env=...)"
        )


def load_policy(run: Path, best: bool, last: bool) -> "SavedPolicy":
    """Return the policy of a run that `--best` or `--last` asks for; no environment is imported."""
    from trellis.policies.pretrained import find_run
    from trellis.policies.saved import SavedPolicy
    from trellis.runs.folder import read_config

    run = find_run(run)
    if best and last:
        raise ValueError("--best and --last exclude each other; leave out one of them")
    read_config(run)
    policy = SavedPolicy.load(run, best=best)
    if best and not policy.is_best:
        say(f"warning: {run} has no evaluation yet; using its last policy")
    return policy


def open_policy(run: Path, best: bool, last: bool) -> "SavedPolicy":
    """Return the policy of a run whose environment the command line can create."""
    policy = load_policy(run, best, last)
    require_id(policy.config.env, run)
    return policy


def output_path(run: Path, name: str) -> Path:
    """Return where a file about a run goes: into it, or here for a policy of the package."""
    from trellis.policies.pretrained import find_run

    return run / name if find_run(run) == run else Path(f"{run.name}{Path(name).suffix}")


def open_to_render(policy: "SavedPolicy") -> "BatchEnv":
    """Create one environment of a policy that can be rendered."""
    return make_env_of(policy, 1, nthread=1, render_mode="rgb_array")


def make_env_of(policy: "SavedPolicy", num_envs: int, **options: Any) -> "BatchEnv":
    """Create the environment that a policy was trained on."""
    from trellis.policies.build import require_fit
    from trellis.training.build import make_env

    config = policy.config
    env = make_env(config, num_envs, **options)
    try:
        spaces = env.observation_space, env.action_space
        require_fit(policy.policy, *spaces, config.env, config.policy.pictures)
        policy.require_spaces(spaces, config.env)
    except ValueError:
        env.close()
        raise
    return env
