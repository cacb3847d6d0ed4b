"""Tries each extra in a clean virtual environment: `make test-extras`.

The core is installed once. Each extra then gets an environment of its own that holds the core and
the packages of that extra alone, and runs the commands of the README and the Guide for it there.
Without an extra, the same commands must end with code 2 and a message that names what to install.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "extras"
LIMIT_SECONDS = 900
TRAIN = "trellis train CartPole-v1 --steps 2048 --eval-episodes 2"
CORE = (
    f"{TRAIN} --out run",
    "trellis eval run --episodes 2",
    "trellis share run --to shared --no-video",
)
"""Commands that need no extra; the others use their run."""


@dataclass(frozen=True)
class Extra:
    """Commands of one extra."""

    commands: tuple[str, ...]
    """Commands that must succeed with the extra."""
    makes: tuple[str, ...] = ()
    """Files that they must write; patterns below the working folder."""
    needs: bool = True
    """Whether the first command must fail without the extra."""


EXTRAS = {
    "mujoco": Extra(
        (
            "trellis train Hopper-v5 --steps 4096 --eval-episodes 1 --out hopper",
            "trellis eval hopper",
        ),
        ("hopper/checkpoints/*/arrays.safetensors",),
    ),
    "atari": Extra(
        (
            "trellis train ALE/Pong-v5 --steps 64 --sampling.num-envs 4 --sampling.steps-per-env 16"
            " --eval-episodes 1 --env-options max_frames=200 --out pong",
        ),
    ),
    "plots": Extra(("trellis plot run --out curve.png",), ("curve.png",)),
    "video": Extra(("trellis record run --out cartpole.mp4",), ("cartpole.mp4",)),
    "tensorboard": Extra(
        (f"{TRAIN} --track tensorboard --out events",), ("events/**/events.out.tfevents.*",)
    ),
    "export": Extra(
        (
            "trellis export run --format onnx --out cartpole.onnx",
            "trellis export run --format stablehlo --out policy.stablehlo",
            f"python {ROOT}/examples/run_exported_policy.py cartpole.onnx",
            "trellis export pretrained/trellis/CartPoleNoVelocity-v0 --out memory.onnx",
        ),
        ("cartpole.onnx", "policy.stablehlo", "memory.onnx"),
    ),
    "tune": Extra(
        (
            "trellis tune CartPole-v1 --trials 2 --steps 2048 --evaluations 1",
            "trellis train --config CartPole-v1.json --steps 2048 --out tuned",
        ),
        ("CartPole-v1.json", "CartPole-v1.study"),
    ),
    "wandb": Extra(
        (
            f"{TRAIN} --track wandb --out tracked",
            "trellis resume tracked --steps 4096 --track wandb",
        ),
        ("tracked/tracking.json", "tracked/wandb/offline-run-*"),
    ),
    "mlflow": Extra(
        (
            f"{TRAIN} --track mlflow --out tracked",
            "trellis resume tracked --steps 4096 --track mlflow",
        ),
        ("tracked/tracking.json", "mlflow.db"),
    ),
    "hub": Extra(("python -c 'import huggingface_hub'",), needs=False),
    "ray": Extra(
        (f"{TRAIN} --shards 2 --cluster local --workers 2 --out rays", "trellis eval rays"),
    ),
    "jax-envs": Extra(
        (
            "trellis train gymnax/CartPole-v1 --steps 4096 --eval-episodes 2 --out jax",
            "trellis eval jax --episodes 2",
        ),
    ),
    "brax": Extra(
        ("trellis train brax/inverted_pendulum --steps 2048 --eval-episodes 1 --out brax",),
    ),
}
"""Commands by the name of the extra."""


def python_of(name: str) -> Path:
    """Return the interpreter of an environment."""
    return BUILD / name / "bin" / "python"


def make_environment(name: str) -> None:
    """Make the environment of an extra, or the core's, unless it is there."""
    ready = BUILD / name / ".ready"
    if ready.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", BUILD / name], check=True)
    what = f"{ROOT}" if name == "core" else f"{ROOT}[{name}]"
    if name != "core":
        # The packages of the core, which pip then finds installed.
        inside = sysconfig.get_path("purelib", vars={"base": "{}", "platbase": "{}"})
        core = inside.format(BUILD / "core")
        Path(inside.format(BUILD / name), "core.pth").write_text(f"{core}\n")
    pip = [python_of(name), "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", what]
    subprocess.run(pip, check=True)
    ready.touch()


def run(name: str, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the programs of an environment, offline, in a folder of its own."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"PATH": f"{python_of(name).parent}:{os.environ['PATH']}", "WANDB_MODE": "offline"}
    command = command.replace("trellis ", "python -m trellis ", 1)
    return subprocess.run(
        *(command,),
        shell=True,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def try_core() -> list[str]:
    """Return what is wrong with the core alone."""
    folder = BUILD / "work" / "core"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wrong = [fault for command in CORE if (fault := failure("core", command, folder))]
    for name, extra in EXTRAS.items():
        if extra.needs:
            done = run("core", extra.commands[0], folder)
            wanted = f"pip install 'trellis-rl[{name}]'"
            if done.returncode != 2 or wanted not in done.stderr or "Traceback" in done.stderr:
                wrong.append(f"without {name}: {extra.commands[0]}: {done.stderr[-400:]}")
    return wrong


def try_extra(name: str) -> list[str]:
    """Return what is wrong with an extra."""
    folder = BUILD / "work" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(BUILD / "work" / "core" / "run", folder / "run")
    extra = EXTRAS[name]
    wrong = [fault for command in extra.commands if (fault := failure(name, command, folder))]
    return wrong + [f"{made} is missing" for made in extra.makes if not [*folder.glob(made)]]


def failure(name: str, command: str, folder: Path) -> str:
    """Return why a command failed; empty if it succeeded."""
    done = run(name, command, folder)
    if done.returncode == 0 and "Traceback" not in done.stderr:
        return ""
    return f"{command}: code {done.returncode}: {done.stderr[-1500:]}"


def main() -> int:
    """Try the core and the extras that the command line names, or all; 1 if something fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="names of extras; all by default")
    code, asked = 0, parser.parse_args().extras or [*EXTRAS]
    if unknown := set(asked) - EXTRAS.keys():
        parser.error(f"unknown extras: {', '.join(sorted(unknown))}")
    for name in ("core", *asked):
        make_environment(name)
        wrong = try_core() if name == "core" else try_extra(name)
        print(f"{name}: {'; '.join(wrong) or 'works'}", flush=True)
        code |= bool(wrong)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
