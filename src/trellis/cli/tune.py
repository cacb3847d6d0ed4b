"""`trellis tune`: search for better settings with Optuna."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from trellis.cli.consent import TrustEnv, allow_env, search_current_folder
from trellis.cli.errors import require_writable, say, usage_errors
from trellis.cli.options import unset

if TYPE_CHECKING:
    from trellis.tuning.study import Study, TrialResult

Part = Literal["step", "estimation", "sampling", "policy"]
Env = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="ENV", help="Gymnasium id of the environment."),
]


def tune(
    env: Env,
    *,
    trials: int = 20,
    steps: Annotated[int | None, unset("a tenth of the preset's")] = None,
    parts: Annotated[tuple[Part, ...], tyro.conf.arg(metavar="PART ...")] = ("step", "estimation"),
    evaluations: int = 5,
    seed: int = 0,
    preset: Annotated[str | None, unset("the preset of the environment")] = None,
    config: Annotated[Path | None, unset("none", metavar="FILE")] = None,
    study: Annotated[Path | None, unset("ENV.study", metavar="FILE")] = None,
    out: Annotated[Path | None, unset("ENV.json", metavar="FILE")] = None,
    trust_env: TrustEnv = False,
) -> int:
    """Search for better settings of an environment.

    Every trial is a short training. Trials that fall behind are stopped early. The same command
    continues a study that was interrupted, and with more --trials one that was finished.

    Args:
        trials: Total number of trials. The first one uses the settings of the preset.
        steps: Simulator steps per trial.
        parts: Parts of the settings to vary.
        evaluations: Evaluations per trial, after which it may be stopped.
        seed: Seed of all trials and of the search.
        preset: Settings to start from.
        config: JSON file with settings to start from, instead of a preset.
        study: File that keeps all trials.
        out: File for the best settings, for `trellis train --config FILE`.
    """
    with usage_errors():
        import dataclasses

        from trellis import presets
        from trellis.config.file import load_config

        for name, value in {"trials": trials, "steps": steps, "evaluations": evaluations}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if config is not None and preset is not None:
            raise ValueError("--preset and --config exclude each other; leave out --preset")
        start = presets.resolve(env, preset) if config is None else load_config(config)
        start = dataclasses.replace(start, env=env, seed=seed)
        search_current_folder()  # The user's own command line names the environment.
        if config is not None:
            allow_env(env, start.env_options, config, trust_env=trust_env, named=True)
        name = env.replace("/", "-").replace(":", "-")
        path, best = study or Path(f"{name}.study"), out or Path(f"{name}.json")
        for file in (path, best):
            require_writable(file.parent)
            if file.is_dir():
                raise ValueError(f"{file} is a folder; choose another --study or --out")
        from trellis.tuning.study import Study

        per_trial = steps or max(start.sampling.most_steps, start.total_steps // 10)
        opened = Study(path, start, steps=per_trial, parts=parts, evaluations=evaluations)
        say(
            f"Tuning {env}: {trials} trials of {per_trial:,} steps, {opened.finished} finished, in"
            f" {path} (stop with Ctrl-C, continue with the same command)"
        )
    with usage_errors(ValueError, TypeError, ImportError):
        opened.run(trials, lambda result: _show(opened, trials, result))
    with usage_errors():
        opened.write_best(best)
    assert opened.best is not None
    print(f"Best: return {opened.best.value:,.1f} in trial {opened.best.number + 1}.")
    print(f"Settings: {best}")
    print(f"  {shlex.join(['trellis', 'train', env, '--config', str(best)])}  # train with them")
    return 0


def _show(study: "Study", trials: int, result: "TrialResult") -> None:
    """Print a line about a trial that ended."""
    best = study.best
    value = "no evaluation" if result.value is None else f"return {result.value:,.1f}"
    state = "stopped early at " if result.pruned else ""
    leader = "" if best is None else f", best {best.value:,.1f}"
    settings = "  ".join(f"{name}={_short(value)}" for name, value in result.settings.items())
    say(f"{study.finished}/{trials}: {state}{value}{leader}  {settings}")


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
