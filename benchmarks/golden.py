"""Compares the results of two commits of Trellis bit for bit, on this machine.

Both commits train each configuration below for ten iterations. The runs use only the command line,
because the modules behind it change between commits. Then the newest checkpoints and the logs of
the two runs are compared, without the timing fields. The arrays of a checkpoint must be equal bit
for bit. A metric may differ by rounding, which is reported.

    python -m benchmarks.golden --old 6a197c2
    python -m benchmarks.golden --old HEAD~1 --new HEAD --only hopper cem

Without --new the second side is the working tree. The exit code is 1 if anything differs.
"""

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

ROOT = Path(__file__).parents[1]
RUNS_AT_ONCE = 2

COMMON = "--max-iterations 10 --steps 1000000000 --eval-every 0 --eval-episodes 2"
SMALL = "--sampling.num-envs 8 --sampling.steps-per-env 64 --policy.hidden 16 16"
VINE = (
    "--sampling.vine.trunks 4 --sampling.vine.trunk-length 100 --sampling.vine.states 32"
    " --sampling.vine.rollout-length 25 --policy.hidden 16 16"
)
SEARCH = "--policy.hidden 8 --search.population 20 --search.path-length 100"

CONFIGURATIONS = {
    "hopper": "Hopper-v5 --sampling.num-envs 16",
    "cartpole": f"CartPole-v1 {SMALL}",
    "gym-object": f"CartPole-v0 {SMALL}",
    "atari": "ALE/Pong-v5 --sampling.num-envs 4 --sampling.steps-per-env 32 --policy.channels 4 4"
    " --policy.hidden 16 --estimation.critic-hidden 16"
    " --env-options preprocessing=paper max_frames=400",
    "paper-hopper-vine": f"trellis/PaperHopper-v0 --preset paper/hopper-vine {VINE}",
    "vine-bootstrap": f"trellis/PaperHopper-v0 --preset paper/hopper-vine-bootstrap {VINE}",
    "vine-discrete": f"CartPole-v1 --sampler vine {VINE}",
    "shards-4": "Hopper-v5 --shards 4 --sampling.num-envs 8 --sampling.steps-per-env 200"
    " --policy.hidden 16 16 --step.fisher-fraction 0.1",
    "shards-4-vine": f"Hopper-v5 --shards 4 --sampler vine {VINE}",
    "natural-gradient": f"Hopper-v5 {SMALL} --method natural-gradient --step.multiplier 0.1"
    " --estimation.advantages center",
    "empirical-fim": f"Hopper-v5 {SMALL} --method empirical-fim",
    "max-kl": f"Hopper-v5 {SMALL} --method max-kl",
    "policy-gradient": f"Hopper-v5 {SMALL} --method policy-gradient",
    "kl-penalty": f"Hopper-v5 {SMALL} --method kl-penalty",
    "linear-critic": f"Hopper-v5 {SMALL} --estimation.critic linear",
    "paper-walker": "trellis/PaperWalker-v0 --sampling.num-envs 4 --policy.hidden 16 16",
    "discount-states": f"CartPole-v1 {SMALL} --estimation.discount-states",
    "cem": f"CartPole-v1 --method cem {SEARCH}",
    "cma": f"CartPole-v1 --method cma {SEARCH}",
    "cem-shards-4": f"CartPole-v1 --method cem --shards 4 {SEARCH}",
}

GROUPS = {
    "theta": ("theta",),
    "critic": ("critic/",),
    "statistics": ("observation_moments/", "return_moments/"),
}
REST = "everything else"
TIMING = ("seconds_", "steps_per_second")
ROUNDING = 1e-5
"""Largest relative difference of a metric that counts as rounding."""

Arrays = Mapping[str, NDArray[Any]]


@contextlib.contextmanager
def checkout(commit: str | None, folder: Path) -> Iterator[Path]:
    """Provide a work tree of `commit` in `folder`, or the current working tree for None."""
    if commit is None:
        yield ROOT
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


def train(tree: Path, name: str, out: Path) -> str | None:
    """Train a configuration with the code in `tree`; return the error output if it fails."""
    options = f"{CONFIGURATIONS[name]} {COMMON}".split()
    done = subprocess.run(
        [sys.executable, "-m", "trellis", "train", *options, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        cwd=out.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr[-2000:] if done.returncode else None


def read_arrays(run: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays of the newest checkpoint of a run, by group."""
    newest = max(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    groups: dict[str, dict[str, NDArray[Any]]] = {group: {} for group in (*GROUPS, REST)}
    for name, array in load_file(newest / "arrays.safetensors").items():
        fits = [group for group, prefixes in GROUPS.items() if name.startswith(prefixes)]
        groups[fits[0] if fits else REST][name] = array
    return groups


def read_metrics(run: Path) -> dict[str, Any]:
    """Return the logged values of a run by iteration and field, without times and checksums."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        f"{row['iteration']}/{field}": value
        for row in rows
        for field, value in row.items()
        if not field.startswith((*TIMING, "checksum"))
    }


def sha256(arrays: Arrays) -> str:
    """Return a hash of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def largest_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[float, str]:
    """Return the largest relative difference of two sets of named values, and describe it."""
    if old.keys() != new.keys():
        lost, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        names = f"only old: {lost[:3]} ({len(lost)}), only new: {added[:3]} ({len(added)})"
        return np.inf, names
    worst, where = 0.0, "dtype, NaN or sign of zero"
    for name in old:
        one, other = np.asarray(old[name]), np.asarray(new[name])
        if one.shape != other.shape:
            return np.inf, f"shape of {name}: {one.shape}, {other.shape}"
        if one.dtype.kind in "OU" or other.dtype.kind in "OU":  # Words, or null in the log.
            if old[name] != new[name]:
                return np.inf, f"{name}: {old[name]!r}, {new[name]!r}"
            continue
        one, other = one.astype(np.float64), other.astype(np.float64)
        # Relative to the largest value of the array, because rounding near zero would look large.
        scale = max(np.nanmax(np.abs(one), initial=0.0), np.nanmax(np.abs(other), initial=0.0))
        largest = float(np.nanmax(np.abs(one - other), initial=0.0) / (scale or 1.0))
        if largest > worst:
            worst, where = largest, name
    return worst, f"largest relative difference {worst:.1e} in {where}"


def compare(old: Path, new: Path) -> Iterator[tuple[str, bool, str]]:
    """Yield each group of values, whether two runs agree in it, and a description."""
    arrays, others = read_arrays(old), read_arrays(new)
    for group in arrays:
        one, other = arrays[group], others[group]
        if one or other:
            equal = sha256(one) == sha256(other)
            yield group, equal, "equal" if equal else largest_difference(one, other)[1]
    rows, other_rows = read_metrics(old), read_metrics(new)
    if rows == other_rows:
        yield "metrics", True, "equal"
    else:
        worst, where = largest_difference(rows, other_rows)
        yield "metrics", worst <= ROUNDING, where


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two commits bit for bit.")
    parser.add_argument("--old", required=True, metavar="COMMIT")
    parser.add_argument("--new", metavar="COMMIT", help="default: the working tree")
    parser.add_argument("--only", nargs="+", choices=CONFIGURATIONS, metavar="NAME")
    options = parser.parse_args()
    differences = 0
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {
            side: stack.enter_context(checkout(commit, temporary / f"{side}-tree"))
            for side, commit in (("old", options.old), ("new", options.new))
        }
        pool = stack.enter_context(ThreadPoolExecutor(RUNS_AT_ONCE))
        for name in options.only or CONFIGURATIONS:
            runs = {side: temporary / f"{name}-{side}" for side in trees}
            errors = pool.map(train, trees.values(), itertools.repeat(name), runs.values())
            failed = {s: error for s, error in zip(trees, errors, strict=True) if error is not None}
            for side, error in failed.items():
                print(f"{name:<18} {side} failed:\n{error}", flush=True)
            found = [] if failed else list(compare(runs["old"], runs["new"]))
            for group, _, how in found:
                print(f"{name:<18} {group:<16} {how}", flush=True)
            differences += len(failed) + sum(not agrees for _, agrees, _ in found)
    print(f"{differences} differ" if differences else "all agree")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
