"""Saving that is killed or runs out of space, in processes that a test starts.

`python -m tests.faults.saving HOW FOLDER TRIALS` saves checkpoints of an agent, each with settings
and parameters that name their number, and prints how many trials left a whole agent behind. Nothing
here imports JAX, so that processes can fork.
"""

import os
import random
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from trellis.checkpoint_format import CheckpointError, load_latest
from trellis.config import TrainConfig
from trellis.runs import checkpoint
from trellis.runs.folder import RunFolderError, as_json, locked, write_config
from trellis.runs.log import RunLog, read_metrics
from trellis.runs.log_lines import LogError


def save_agent(folder: Path, number: int, size: int = 20_000) -> None:
    """Save an agent as `TRPO.save` does; settings, values and parameters hold its number."""
    config = TrainConfig("CartPole-v1", seed=number)
    arrays = {"theta": np.full(size, number, np.float32)}
    with locked(folder):
        # Iterations go up and down: an agent may replace one that was trained for longer.
        checkpoint.save(
            folder / "checkpoints",
            1 + number % 3,
            arrays,
            {"number": number},
            keep=1,
            config=as_json(config),
        )
        write_config(folder, config)


def number_of(folder: Path) -> int:
    """The number of the agent in a folder; raise if its parts are of different ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = load_latest(folder / "checkpoints")
    assert saved.config is not None
    numbers = {saved.config["seed"], saved.values["number"], *saved.arrays["theta"].tolist()}
    assert len(numbers) == 1, numbers
    return int(numbers.pop())


def kill(folder: Path, trials: int) -> int:
    """Kill a process that saves all the time, at random moments."""
    rng, held, last = random.Random(0), 0, 0
    save_agent(folder, 0)
    for _ in range(trials):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                number = last
                while True:
                    number += 1
                    save_agent(folder, number)
                    os.write(writing, b"%d\n" % number)
            finally:
                os._exit(1)
        os.close(writing)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading) as pipe:
            announced = [last, *map(int, pipe.read().split())][-1]
        last = number_of(folder)
        held += last in (announced, announced + 1)
    return held


def no_space(folder: Path, trials: int) -> int:
    """Let the system refuse every byte of a file beyond some size, one size after the other."""
    save_agent(folder, 0)
    (folder / "log").mkdir()
    whole = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    held = 0
    for trial in range(trials):
        child = os.fork()
        if not child:
            os._exit(_try_without_space(folder, whole * trial // trials))
        _, status = os.waitpid(child, 0)
        number_of(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = read_metrics(folder / "log")
        whole_rows = [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
        held += os.waitstatus_to_exitcode(status) == 0 and whole_rows
        for path in (folder / "log").iterdir():
            path.unlink()
    return held


def _try_without_space(folder: Path, size: int) -> int:
    """Return 0 if saving and logging succeed, or fail with errors that say why."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        save_agent(folder, 1)
    except (CheckpointError, RunFolderError) as error:
        if "File too large" not in str(error):
            return 1
    try:
        with RunLog(folder / "log", tensorboard=False) as log:
            for iteration in range(1, 2 + size // 100):
                log.write({"iteration": iteration, "steps": iteration, "text": "x" * 50})
    except LogError as error:
        if "File too large" not in str(error):
            return 1
    return 0


if __name__ == "__main__":
    how, path, count = sys.argv[1:]
    Path(path).mkdir()
    print({"kill": kill, "no-space": no_space}[how](Path(path), int(count)))
