"""Section 8.2: Table 1 and the learning curves of Figure 5, `trellis reproduce atari`.

Trains what is missing, plays the last policy of every run in the folder, and writes atari.json,
table.csv, README.md and curves.png. The runs are in `atari_runs.py`, playing in `atari_scores.py`,
the table in `atari_table.py` and the figure in `atari_figure.py`.

What has been played is written down at once and not played again: a policy is known by its
parameters, random actions by the rules of the game.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trellis import presets
from trellis.analysis.curves import seconds
from trellis.cli.messages import UsageError
from trellis.reproduce.atari import figure as atari_figure
from trellis.reproduce.atari import scores as atari_scores
from trellis.reproduce.atari import table as atari_table
from trellis.reproduce.atari.plans import Experiment, FoundRun, env_id, extend, find_runs
from trellis.reproduce.atari.scores import ACTIONS, EPISODES, Latest
from trellis.reproduce.record import as_text
from trellis.reproduce.sweep import execute
from trellis.runs.checkpoint import CHECKPOINTS, newest_iteration
from trellis.runs.folder import locked, write_whole
from trellis.runs.log import METRICS, read_metrics
from trellis.runs.provenance import commit

JSON = "atari.json"
Say = Callable[[str], None]


def run(asked: Experiment, out: Path, say: Say, *, report_only: bool = False) -> dict[str, Any]:
    """Trains what is missing, unless only a report is asked for; then reports on what there is."""
    if not report_only:
        plans = asked.plans
        for plan in plans:
            extend(plan)
        execute(plans, asked.parallel, say)
    return report(asked, out, say, command=asked.command(out, report_only=report_only))


def report(asked: Experiment, out: Path, say: Say, *, command: str) -> dict[str, Any]:
    """The results of all runs of the games that are asked for, finished or not.

    What is known of other games stays as it is in the results.
    """
    found = _begun(asked, say)
    before = _read(out / JSON)
    runs = {record["run"]: record for record in before.get("runs", [])}
    randoms = [r for r in before.get("random", []) if r["evaluation"]["episodes"] == EPISODES]
    results: dict[str, Any] = {"settings": {"episodes": EPISODES, "actions": ACTIONS}}
    made_by = {"command": command, "commit": commit()}

    def save() -> None:
        """With what others have written to the same file meanwhile."""
        out.mkdir(parents=True, exist_ok=True)
        with locked(out):
            there = _read(out / JSON)
            for record in there.get("runs", []):
                if record["game"] not in asked.games:
                    runs[record["run"]] = record
            known = [(r["game"], r["env_options"]) for r in randoms]
            randoms.extend(
                r
                for r in there.get("random", [])
                if r["evaluation"]["episodes"] == EPISODES
                and (r["game"], r["env_options"]) not in known
            )
            results.update(random=randoms, runs=list(runs.values()))
            results["rows"] = atari_table.rows(results["runs"], randoms)
            write_whole(out / JSON, as_text(results))

    for game, options in _rules(asked, found):
        if not any(r["game"] == game and r["env_options"] == options for r in randoms):
            record = {"game": game, "env_options": options}
            say(f"Playing {EPISODES} episodes of {game}, {atari_table.random_label(record)}")
            played = atari_scores.play_random(env_id(game), options, EPISODES)
            randoms.append({**record, "evaluation": atari_scores.summary(played)})
            save()
    for index, (run, last) in enumerate(found, start=1):
        evaluation = _known(runs.get(run.name), last)
        if evaluation is None:
            say(f"Playing {EPISODES} episodes with {run.name} ({index} of {len(found)})")
            played = atari_scores.play_policy(run.config, last.theta, last.moments, EPISODES)
            evaluation = atari_scores.summary(played)
        runs[run.name] = {**_facts(run, last), **made_by, "evaluation": evaluation}
        save()
    there = {run.name for run, _ in found}
    gone = [n for n, r in runs.items() if r["game"] in asked.games and n not in there]
    for name in gone:
        del runs[name]
    save()
    atari_table.write(results, out)
    atari_figure.draw(results, out / "curves.png")
    return results


def _begun(asked: Experiment, say: Say) -> list[tuple[FoundRun, Latest]]:
    """The runs in the folder that have an iteration behind them."""
    found: list[tuple[FoundRun, Latest]] = []
    for run in find_runs(asked.runs, asked.games):
        begun = newest_iteration(run.folder / CHECKPOINTS) is not None
        last = atari_scores.latest(run) if begun else None
        if last is None or not last.iteration:
            say(f"{run.name} is left out: it has no iteration yet")
            continue
        for other, _ in found:
            if _experiment(other) == _experiment(run):
                raise UsageError(
                    f"{other.folder} and {run.folder} have the same settings and the same seed: a"
                    " mean would count one experiment twice; move one of them away"
                )
        found.append((run, last))
    if not found:
        raise UsageError(
            f"there is no run of {', '.join(asked.games)} in {asked.runs} to report on: leave out"
            " --report-only to train one, or name the folder with --runs"
        )
    return found


def _rules(
    asked: Experiment, found: Sequence[tuple[FoundRun, Latest]]
) -> list[tuple[str, dict[str, Any]]]:
    """Games and the rules by which random actions are to play them: those of the preset in all
    games, those of the runs in their own."""
    options = dict(presets.ATARI[asked.preset].env_options)
    rules = [(game, options) for game in asked.games]
    for run, _ in found:
        rule = (run.game, dict(run.config.env_options))
        if rule not in rules:
            rules.append(rule)
    return rules


def _experiment(run: FoundRun) -> tuple[Any, ...]:
    """What no two runs of a report may have in common."""
    return run.game, run.config.preset, run.differs, run.config.seed


def _known(record: dict[str, Any] | None, last: Latest) -> dict[str, Any] | None:
    """What this very policy has scored, if it has been played."""
    if record is None or record["fingerprint"] != last.fingerprint:
        return None
    evaluation = record["evaluation"]
    return evaluation if evaluation["episodes"] == EPISODES else None


def _facts(run: FoundRun, last: Latest) -> dict[str, Any]:
    """What is known of a run without playing: how far it came, what it took, its curve."""
    rows = read_metrics(run.folder) if (run.folder / METRICS).is_file() else []
    until = [row for row in rows if row["iteration"] <= last.iteration]
    return {
        "run": run.name,
        "game": run.game,
        "preset": run.config.preset,
        "differs": run.differs,
        "env_options": dict(run.config.env_options),
        "seed": run.config.seed,
        "iterations": last.iteration,
        "steps": last.steps,
        "planned_steps": run.config.total_steps,
        "finished": run.config.is_over(last.iteration, last.steps),
        "minutes": round(float(seconds(until)[-1]) / 60, 2) if until else 0.0,
        "threads": run.config.threads,
        "fingerprint": last.fingerprint,
        "curve": atari_figure.cost_curve(rows),
    }


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
