"""Trains, resumes and restores environments of many packages, and writes a table of the results.

`make test-ecosystem` installs the packages in a virtual environment of their own and runs this
module there. Each environment has a process of its own with a time limit. It trains for two
iterations. A copy of the run goes back to its first checkpoint and resumes; both must have the same
parameters, bit for bit.
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from trellis.spaces import action_kind

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "ecosystem.json"
PAGE = ROOT / "docs" / "reference" / "ecosystem.md"
LIMIT_SECONDS = 600
ENVS, STEPS = 2, 16
"""Environments and steps of each in one iteration."""
EPISODE = 40
"""Time limit of an episode, so that evaluations are short."""
SPEED_SECONDS = 2.0
"""Time for which the speed is measured."""
ROBOTICS, PANDA, GRID = "gymnasium_robotics", "panda_gym", "minigrid"
HIGHWAY, DOOM = "highway_env", "vizdoom.gymnasium_wrapper"
IDS: dict[str, tuple[str, ...]] = {
    "gymnasium (classic control)": ("CartPole-v1", "Acrobot-v1", "MountainCarContinuous-v0"),
    "gymnasium (toy text)": ("Taxi-v4", "FrozenLake-v1", "Blackjack-v1"),
    "gymnasium (Box2D)": ("LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"),
    "gymnasium (MuJoCo)": ("Hopper-v5", "Ant-v5"),
    "ale-py": ("ale_py:ALE/Freeway-v5", "ALE/Pong-v5"),
    "gymnasium-robotics": (
        *(f"{ROBOTICS}:FetchReach-v4", f"{ROBOTICS}:HandReach-v3"),
        *(f"{ROBOTICS}:FrankaKitchen-v1", f"{ROBOTICS}:PointMaze_UMaze-v3"),
        f"{ROBOTICS}:AdroitHandDoor-v1",
    ),
    "panda-gym": (f"{PANDA}:PandaReach-v3", f"{PANDA}:PandaPush-v3"),
    "minigrid": (f"{GRID}:MiniGrid-Empty-5x5-v0", f"{GRID}:BabyAI-GoToRedBall-v0"),
    "highway-env": (f"{HIGHWAY}:highway-fast-v0", f"{HIGHWAY}:parking-v0"),
    "mo-gymnasium": ("mo_gymnasium:deep-sea-treasure-v0",),
    "metaworld": ("metaworld:Meta-World/MT1 env_name=reach-v3",),
    "vizdoom": (f"{DOOM}:VizdoomBasic-v1",),
    "flappy-bird-gymnasium": ("flappy_bird_gymnasium:FlappyBird-v0",),
    "gym-pusht": ("gym_pusht:gym_pusht/PushT-v0",),
    "shimmy (bsuite)": ("shimmy:bsuite/catch-v0", "shimmy:bsuite/cartpole-v0"),
    "PyFlyt": ("PyFlyt.gym_envs:PyFlyt/QuadX-Hover-v1",),
    "pybullet_envs_gymnasium": ("pybullet_envs_gymnasium:HopperBulletEnv-v0",),
    "popgym": ("popgym:popgym-RepeatPreviousEasy-v0",),
    "tetris-gymnasium": ("tetris_gymnasium.envs:tetris_gymnasium/Tetris",),
    "gym-anytrading": ("gym_anytrading:stocks-v0",),
}
"""Environment ids by package; options follow an id after a space."""


def try_environment(words: str) -> dict[str, Any]:
    """Return what training, resuming and restoring one environment gave."""
    from trellis import envs, presets
    from trellis.envs.catalog import is_batched
    from trellis.runs.run import closing, resume, train
    from trellis.runs.trainers import make_trainer

    env_id, *given = words.split()
    options: dict[str, Any] = dict(pair.split("=", 1) for pair in given)
    config = presets.resolve(env_id)
    sampling = dataclasses.replace(config.sampling, num_envs=ENVS, steps_per_env=STEPS)
    iteration = ENVS * STEPS
    config = dataclasses.replace(
        config,
        sampling=sampling,
        total_steps=2 * iteration,
        eval_every=0,
        eval_episodes=1,
        checkpoint_every=iteration,
        env_options={**config.env_options, "max_episode_steps": EPISODE, **options},
    )
    with tempfile.TemporaryDirectory() as folder:
        whole, half = Path(folder, "whole"), Path(folder, "half")
        with closing(make_trainer(config)) as trainer:
            state, inexact = train(trainer, whole, quiet=True, tensorboard=False), trainer.inexact
        shutil.copytree(whole, half)
        shutil.rmtree(max((half / "checkpoints").iterdir()))
        again = resume(half, trust_env=True, quiet=True, tensorboard=False)
    options = {**config.env_options, **options}
    del options["max_episode_steps"]
    many = 64 if is_batched(env_id, options) else ENVS
    with contextlib.closing(envs.make(env_id, many, **options)) as batch:
        restorable = batch.restorability is not envs.Restorability.NONE
        why = "" if restorable else batch.why_not_restorable
        speed = steps_per_second(batch)
    return {
        "trains": True,
        "steps_per_second": round(speed, 1),
        "resume_exact": state.theta.tobytes() == again.theta.tobytes(),
        "inexact_because": inexact,
        "vine": restorable,
        "no_vine_because": why,
    }


def steps_per_second(batch: Any) -> float:
    """Return the speed of a batch with random actions, after its first step."""
    rng, everyone = np.random.default_rng(0), np.arange(batch.num_envs)
    kind = action_kind(batch.action_space)
    batch.reset(everyone, everyone)
    steps, begun = -1, time.perf_counter()
    while steps < 1 or time.perf_counter() - begun < SPEED_SECONDS:
        if isinstance(kind, int):
            actions = rng.standard_normal((batch.num_envs, kind))
        else:
            actions = rng.integers(kind, size=(batch.num_envs, len(kind)))
        step = batch.step(actions)
        ended = np.flatnonzero(step.terminated | step.truncated)
        if len(ended):
            batch.reset(ended, ended)
        steps += 1
        if steps == 0:
            begun = time.perf_counter()
    return steps * batch.num_envs / (time.perf_counter() - begun)


def run_alone(package: str, words: str) -> dict[str, Any]:
    """Return the results of one environment from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.ecosystem", "--one", words]
    row: dict[str, Any] = {"package": package, "env_id": words, "trains": False}
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy", "MUJOCO_GL": "egl"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return row | {"message": f"no result within {LIMIT_SECONDS} seconds"}
    # Simulators write to standard output, too.
    last = [line for line in done.stdout.splitlines() if line.startswith('{"trains')] or [""]
    try:
        row |= json.loads(last[-1])
    except ValueError:
        row |= {"message": f"the process ended with code {done.returncode}: {done.stderr[-300:]}"}
    return row | {"traceback": "Traceback" in done.stderr}


def write_page(rows: list[dict[str, Any]], versions: dict[str, str]) -> None:
    """Write the table as a page of the documentation."""
    packages = {row["package"].partition(" (")[0] for row in rows}
    trained = sum(row["trains"] for row in rows)
    lines = [
        "# Environments of other packages",
        "",
        f"`make test-ecosystem` tried {len(rows)} environments of {len(packages)} packages;"
        f" {trained} train. Each one trains, stops half-way, resumes and is compared bit for bit,"
        " in a process of its own. Speeds are of random actions on two CPU cores that other work"
        " shared: 64 environments where Trellis has its own batch, else two in one process.",
        "",
        "| package | environment | trains | steps/s | exact resume | vine |",
        "|---|---|---|---|---|---|",
    ]
    notes: dict[str, int] = {}

    def note(text: str) -> str:
        return f" [{notes.setdefault(text, len(notes) + 1)}]" if text else ""

    for row in rows:
        cells = [row["package"], f"`{row['env_id']}`"]
        if row["trains"]:
            exact = "yes" if row["resume_exact"] else "no"
            vine = "yes" if row["vine"] else "no"
            speed = row["steps_per_second"]
            cells += ["yes", f"{speed:,.{0 if speed >= 10 else 1}f}"]
            name = row["env_id"].split()[0].rpartition(":")[2]
            reason = row["inexact_because"].replace(name, "It").rstrip(".") + "."
            cells += [exact + ("" if row["resume_exact"] else note(reason))]
            cells += [vine + note(row["no_vine_because"].partition(" To make it")[0])]
        else:
            cells += ["no" + note(row["message"]), "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Reasons", ""]
    lines += [f"{number}. {text}" for text, number in notes.items()]
    lines += ["", "## Versions", "", "| package | version |", "|---|---|"]
    lines += [f"| {name} | {version} |" for name, version in versions.items()]
    PAGE.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Try every environment, or one of them for the process that asked for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help="try one environment and print its result as JSON")
    parser.add_argument("--missing", action="store_true", help="only ids without a result")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--only", metavar="TEXT", help="only ids that contain this text")
    asked = parser.parse_args()
    if asked.one:
        logging.disable(logging.CRITICAL)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                result = try_environment(asked.one)
        except Exception as error:
            result = {"trains": False, "message": str(error) or repr(error)}
        print("\n" + json.dumps(result))
        return
    rows: dict[str, Any] = {}
    if RESULTS.exists() and (asked.missing or asked.page or asked.only):
        rows = {row["env_id"]: row for row in json.loads(RESULTS.read_text())["rows"]}
    for package, ids in IDS.items():
        for words in ids:
            if asked.page or (asked.missing and words in rows) or (asked.only or "") not in words:
                continue
            rows[words] = run_alone(package, words)
            print(json.dumps(rows[words]), flush=True)
            write(rows)
    write(rows)


def write(rows: dict[str, Any]) -> None:
    """Write the results so far as JSON and as a page, in the order of `IDS`."""
    known = [rows[words] for ids in IDS.values() for words in ids if words in rows]
    names = dict.fromkeys(row["package"].partition(" (")[0] for row in known)
    versions = {name: importlib.metadata.version(name) for name in (*names, "mujoco")}
    RESULTS.write_text(json.dumps({"versions": versions, "rows": known}, indent=1) + "\n")
    write_page(known, versions)


if __name__ == "__main__":
    main()
