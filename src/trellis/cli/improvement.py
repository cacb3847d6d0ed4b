"""`trellis improvement`: measure whether every iteration of a run improved its policy."""

import contextlib
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.cli.consent import Import, TrustEnv, allow_env, import_modules
from trellis.cli.errors import say, usage_errors
from trellis.cli.runs import Json, RunFolder, config_of, make_env_of

if TYPE_CHECKING:
    from trellis.config import TrainConfig


def improvement(
    run: RunFolder,
    *,
    pairs: int = 50,
    episodes: int = 64,
    seed: int = 0,
    json_: Json = False,
    trust_env: TrustEnv = False,
    import_: Import = (),
) -> int:
    """Measure how much each iteration of a run improved its policy.

    The run must have been trained with --keep-policies. Consecutive policies play the same episodes
    with common random numbers and sampled actions.

    Args:
        pairs: Largest number of iterations to measure, spread evenly over the run.
        episodes: Number of episodes per policy.
        seed: Seed of the episodes and of all random numbers.
    """
    with usage_errors():
        from trellis.analysis import improvement as measurement
        from trellis.checkpoint_format import CheckpointError
        from trellis.runs.kept_policies import load_kept
        from trellis.runs.log import stream_metrics
        from trellis.runs.log_lines import LogError

        for name, value, least in (("pairs", pairs, 1), ("episodes", episodes, 2)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        config = config_of(run)
        with usage_errors(CheckpointError, LogError):
            measurable = _measurable(run, config)
            # An entropy bonus is part of the surrogate, but not of the reward.
            promised = (
                {} if config.step.entropy_bonus else measurement.promises(stream_metrics(run))
            )
            first = load_kept(run, measurable[0] - 1, config)
        import_modules(import_)
        allow_env(config.env, config.env_options, run, trust_env=trust_env)
        env = make_env_of(first, episodes, nthread=config.threads)
    chosen = measurement.choose(measurable, pairs)
    say(
        f"Measuring {len(chosen)} of {len(measurable)} iterations of {config.env} with {episodes}"
        " episodes per policy …"
    )
    with contextlib.closing(env), usage_errors(CheckpointError):
        gains = measurement.measure(
            env,
            lambda iteration: load_kept(run, iteration, config),
            chosen,
            promised,
            seed=seed,
            say=lambda done: say(f"{done} of {len(chosen)}") if done % 10 == 0 else None,
        )
    found: dict[str, Any] = {
        "env": config.env,
        "method": config.step.method,
        "run": str(run),
        "episodes": episodes,
        "seed": seed,
        "gamma": config.estimation.gamma,
    }
    for unit, measured in gains.items():
        found[unit] = measurement.summarize(measured)
        found[unit]["gains"] = measurement.to_json(measured)
    print(json.dumps(found) if json_ else _table(found))
    return 0


def _measurable(run: Path, config: "TrainConfig") -> list[int]:
    """Return the iterations whose policies before and after were kept."""
    from trellis.runs.kept_policies import kept_iterations

    kept = set(kept_iterations(run))
    found = sorted(iteration for iteration in kept if iteration - 1 in kept)
    if found:
        return found
    if config.keep_policies:
        raise ValueError(f"{run} has not finished an iteration yet: wait until it has")
    out = run.with_name(f"{run.absolute().name}-policies")
    again = ["trellis", "train", "--config", str(run / "config.json"), "--keep-policies"]
    raise ValueError(
        f"{run} did not keep the policies of its iterations. The same run with policies:"
        f" {shlex.join([*again, '--out', str(out)])}"
    )


def _table(found: dict[str, Any]) -> str:
    """Return the summary as a table with a column for each unit."""
    rows = {
        "improves (95%)": lambda s: f"{s['improved_share']:.0%} ({s['improved']})",
        "undecided": lambda s: f"{s['undecided'] / s['iterations']:.0%} ({s['undecided']})",
        "falls (95%)": lambda s: f"{s['fell_share']:.0%} ({s['fell']})",
        "falls expected by chance": lambda s: f"{s['falls_by_chance']:.1f}",
        "improves by estimate": lambda s: f"{s['improved_by_estimate_share']:.0%}",
        "mean gain": lambda s: f"{s['mean_gain']:.3g}",
        "largest fall": _fall,
        "predicted mean gain": lambda s: _number(s["prediction"], "mean_predicted"),
        "measured / predicted": lambda s: _number(s["prediction"], "measured_over_predicted"),
        "correlation": lambda s: _number(s["prediction"], "correlation"),
    }
    units = ["total", "discounted"]
    lines = [
        f"{found['env']}, {found['method']}: {found[units[0]]['iterations']} iterations,"
        f" {found['episodes']} episodes per policy, common random numbers",
        f"{'':<26}{'return':<34}discounted (γ = {found['gamma']:g})",
    ]
    for name, cell in rows.items():
        cells = [cell(found[unit]) for unit in units]
        lines.append(f"{name:<26}{cells[0]:<34}{cells[1]}")
    return "\n".join(lines)


def _fall(summary: dict[str, Any]) -> str:
    fall = summary["largest_fall"]
    if fall is None:
        return "none"
    low, high = fall["interval_95"]
    return f"{fall['gain']:.3g} ({low:.3g} to {high:.3g}), it. {fall['iteration']}"


def _number(prediction: dict[str, Any] | None, name: str) -> str:
    value = None if prediction is None else prediction[name]
    return "-" if value is None else f"{value:.3g}"
