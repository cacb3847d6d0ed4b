"""The loop around an iteration, with a trainer of NumPy alone that carries state of its own."""

import contextlib
import dataclasses
import errno
import fcntl
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trellis.checkpoint_format import CheckpointError, CheckpointWarning, load_latest
from trellis.cli.errors import say
from trellis.config import SamplingConfig, TrainConfig
from trellis.envs.batch import BadValueError
from trellis.runs import checkpoint, folder
from trellis.runs.folder import RunFolderError, read_config, write_config
from trellis.runs.log import read_metrics
from trellis.runs.run import RunInterrupted, crossed, resume, train
from trellis.training.base import TrainerBase

BATCH = 10
CONFIG = TrainConfig(
    env="Fake-v0",
    seed=3,
    total_steps=100,
    eval_every=30,
    checkpoint_every=40,
    keep_checkpoints=2,
    sampling=SamplingConfig(num_envs=2, steps_per_env=BATCH // 2),
)


@dataclasses.dataclass(frozen=True)
class State:
    theta: np.ndarray
    observation_moments: float = 0.0
    iteration: int = 0
    steps: int = 0
    best_return: float = -np.inf
    best_theta: np.ndarray | None = None
    best_moments: float | None = None
    best_iteration: int = 0
    best_steps: int = 0


class FakeTrainer:
    """θ walks at random, pushed by an environment whose position lives here, not in the state."""

    inexact = ""

    def __init__(self, config: TrainConfig, during: Any = None):
        self.config, self.during = config, during
        self.position = np.zeros(4)
        self.closed = False
        self.evaluated: list[int] = []

    def watch(self, on_steps: Any) -> None:
        """Ignore the display: nothing here is slow."""

    def start(self) -> State:
        return State(np.zeros(4, np.float32))

    def iterate(self, state: State) -> tuple[State, dict[str, Any]]:
        if self.during is not None:
            self.during(state)
        rng = np.random.default_rng([self.config.seed, state.iteration])
        self.position = 0.9 * self.position + rng.normal(size=4)
        theta = state.theta + self.position.astype(np.float32)
        iteration, steps = state.iteration + 1, state.steps + BATCH
        state = dataclasses.replace(
            state, theta=theta, iteration=iteration, steps=steps, observation_moments=float(steps)
        )
        kl = float(rng.normal())
        return state, {"iteration": iteration, "steps": steps, "kl": kl, "status": "accepted"}

    def evaluate(self, state: State, episodes: int) -> Any:
        assert episodes == self.config.eval_episodes
        self.evaluated.append(state.iteration)
        mean = float(np.sin(state.theta).sum())
        return SimpleNamespace(mean_return=mean, std_return=0.5, mean_length=7.0)

    with_evaluation: Any = TrainerBase.with_evaluation

    def to_checkpoint(self, state: State) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {"theta": state.theta, "env/position": self.position}
        if state.best_theta is not None:
            arrays["best_theta"] = state.best_theta
        names = ("observation_moments", "iteration", "steps", "best_return", "best_moments")
        return arrays, {name: getattr(state, name) for name in names}

    def from_checkpoint(self, arrays: dict[str, np.ndarray], values: dict[str, Any]) -> State:
        self.position = arrays["env/position"]
        return State(arrays["theta"], best_theta=arrays.get("best_theta"), **values)

    def close(self) -> None:
        self.closed = True


def run(path: Path, config: TrainConfig = CONFIG, during: Any = None, **options: Any) -> State:
    trainer: Any = FakeTrainer(config, during)
    return train(trainer, path, quiet=True, tensorboard=False, **options)  # pyright: ignore


def go_on(path: Path, during: Any = None, **options: Any) -> State:
    def make(config: TrainConfig) -> Any:
        return FakeTrainer(config, during)

    return resume(path, make_trainer=make, quiet=True, tensorboard=False, **options)  # pyright: ignore


def whole(path: Path) -> tuple[bytes, dict[str, bytes], dict[str, Any]]:
    """All that a run has left behind: its log, and the arrays and values of its last checkpoint."""
    last = load_latest(path / "checkpoints")
    arrays = {name: array.tobytes() for name, array in last.arrays.items()}
    return (path / "metrics.jsonl").read_bytes(), arrays, last.values


def at(iteration: int, action: Any) -> Any:
    """Does something while the iteration of this number is under way."""
    return lambda state: action() if state.iteration + 1 == iteration else None


def crash() -> None:
    raise BadValueError("reward is not finite: nan", env_id="Fake-v0", index=1, step=2, seed=3)


def test_a_run_is_a_folder(tmp_path):
    state = run(tmp_path / "a" / "run")
    path = tmp_path / "a" / "run"
    assert {p.name for p in path.iterdir()} == {"config.json", "metrics.jsonl", "checkpoints"}
    assert json.loads((path / "config.json").read_text())["schema_version"] == 3
    assert read_config(path) == CONFIG
    rows = read_metrics(path)
    assert [row["iteration"] for row in rows] == list(range(1, 11))
    assert state.steps == 100
    assert whole(path)[1]["theta"] == state.theta.tobytes()


def test_evaluations_and_checkpoints_fall_due_by_steps(tmp_path):
    saved = []
    state = run(
        tmp_path,
        callbacks=[lambda *_: saved.append(sorted(p.name for p in checkpoints(tmp_path)))],
    )
    rows = read_metrics(tmp_path)
    evaluated = {r["iteration"]: r["eval_return_mean"] for r in rows if "eval_return_mean" in r}
    assert list(evaluated) == [3, 6, 9, 10]
    assert rows[2]["eval_return_std"] == 0.5
    assert rows[2]["eval_length_mean"] == 7.0
    best = max(evaluated, key=lambda i: evaluated[i])
    assert best != 10, "the best must not be the last for this to say anything"
    assert state.best_return == evaluated[best]
    assert state.best_moments == best * BATCH  # Those that the best policy saw.
    assert np.sin(state.best_theta).sum() == pytest.approx(evaluated[best])
    # As seen before each iteration's own: 0 at the start, 4 and 8 by period, 10 at the end.
    assert saved[0] == ["000000"]
    assert saved[4] == ["000000", "000004"]
    assert saved[8] == ["000004", "000008"]
    assert sorted(p.name for p in checkpoints(tmp_path)) == ["000008", "000010"]


def checkpoints(path: Path) -> list[Path]:
    return list((path / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("before", "after", "every", "expected"),
    [(0, 10, 10, 1), (10, 19, 10, 0), (19, 20, 10, 1), (5, 95, 10, 1), (9, 9, 10, 0), (0, 9, 0, 0)],
)
def test_crossing(before, after, every, expected):
    assert crossed(before, after, every) == expected


def test_evaluations_do_not_influence_training(tmp_path):
    often = run(tmp_path / "often", dataclasses.replace(CONFIG, eval_every=1))
    never = run(tmp_path / "never", dataclasses.replace(CONFIG, eval_every=0))
    assert often.theta.tobytes() == never.theta.tobytes()
    rows = read_metrics(tmp_path / "never")
    assert [r["iteration"] for r in rows if "eval_return_mean" in r] == [10]


@pytest.mark.parametrize("broken_at", [1, 2, 5, 9, 10])
def test_a_broken_run_goes_on_bit_for_bit(tmp_path, broken_at):
    run(tmp_path / "straight")
    with pytest.raises(BadValueError, match="not finite") as caught:
        run(tmp_path / "broken", during=at(broken_at, crash))
    assert "trellis resume" in caught.value.__notes__[0]
    assert len(read_metrics(tmp_path / "broken")) == broken_at - 1
    # The last good checkpoint is as it was.
    expected = (broken_at - 1) // 4 * 4
    assert load_latest(tmp_path / "broken" / "checkpoints").iteration == expected
    go_on(tmp_path / "broken")
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


def test_killed_and_resumed_equals_straight(tmp_path):
    run(tmp_path / "straight")
    code = (
        "import os, sys; sys.path[:0] = sys.argv[2:]\n"
        "from tests.runs.test_run import at, run, Path\n"
        "run(Path(sys.argv[1]), during=at(7, lambda: os.kill(os.getpid(), 9)))\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code, str(tmp_path / "killed"), str(root / "src"), str(root)]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(read_metrics(tmp_path / "killed")) == 6
    go_on(tmp_path / "killed")
    assert whole(tmp_path / "killed") == whole(tmp_path / "straight")


def test_a_damaged_checkpoint_costs_time_and_nothing_else(tmp_path):
    run(tmp_path / "straight")
    with pytest.raises(BadValueError):
        run(tmp_path / "broken", during=at(10, crash))
    (tmp_path / "broken" / "checkpoints" / "000008" / "arrays.safetensors").write_bytes(b"")
    with pytest.warns(CheckpointWarning, match="000008"):
        go_on(tmp_path / "broken")
    assert whole(tmp_path / "broken") == whole(tmp_path / "straight")


def test_a_finished_run_is_extended(tmp_path):
    longer = dataclasses.replace(CONFIG, total_steps=150, eval_every=10)
    run(tmp_path / "straight", longer)
    run(tmp_path / "extended", dataclasses.replace(longer, total_steps=100))
    before = whole(tmp_path / "extended")
    assert go_on(tmp_path / "extended").steps == 100
    assert whole(tmp_path / "extended") == before
    assert go_on(tmp_path / "extended", steps=150).steps == 150
    assert whole(tmp_path / "extended") == whole(tmp_path / "straight")
    assert read_config(tmp_path / "extended") == longer
    with pytest.raises(RunFolderError, match="150 steps, which 120 would not extend"):
        go_on(tmp_path / "extended", steps=120)
    # One that its iterations have ended has fewer steps than it was allowed.
    limited = dataclasses.replace(longer, total_steps=1000, max_iterations=10)
    assert run(tmp_path / "limited", limited).steps == 100
    with pytest.raises(RunFolderError, match="100 steps, which 90 would not extend"):
        go_on(tmp_path / "limited", steps=90)
    assert go_on(tmp_path / "limited", steps=150).steps == 150


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_finishes_the_iteration(tmp_path, number):
    run(tmp_path / "straight")
    old = signal.getsignal(number)
    with pytest.raises(RunInterrupted, match=r"after iteration 3 .*trellis resume") as caught:
        run(tmp_path / "run", during=at(3, lambda: os.kill(os.getpid(), number)))
    assert caught.value.received == number
    assert signal.getsignal(number) is old
    assert len(read_metrics(tmp_path / "run")) == 3
    assert load_latest(tmp_path / "run" / "checkpoints").iteration == 3
    go_on(tmp_path / "run")
    assert whole(tmp_path / "run") == whole(tmp_path / "straight")


def test_the_second_signal_interrupts_at_once(tmp_path):
    reached = []

    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(2)

    with pytest.raises(KeyboardInterrupt) as caught:
        run(tmp_path, during=at(3, twice))
    assert not isinstance(caught.value, RunInterrupted)
    assert reached == [1]
    assert len(read_metrics(tmp_path)) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        state = run(tmp_path, during=at(3, lambda: os.kill(os.getpid(), signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, old)
    assert state.steps == 100


def test_runs_in_other_threads_too(tmp_path):
    states = []
    thread = threading.Thread(target=lambda: states.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert states[0].steps == 100


@pytest.mark.parametrize("no", [False, np.False_])
def test_a_callback_sees_everything_and_may_stop(tmp_path, no):
    seen = []

    def watch(state, metrics):
        seen.append((state.iteration, "eval_return_mean" in metrics))
        return no if state.iteration == 3 else None

    state = run(tmp_path / "run", callbacks=[watch, lambda *_: None])
    assert seen == [(1, False), (2, False), (3, True)]
    assert state.iteration == 3
    run(tmp_path / "straight")
    go_on(tmp_path / "run")
    assert whole(tmp_path / "run") == whole(tmp_path / "straight")


def test_no_space_for_a_checkpoint_stops_the_run_and_loses_nothing(tmp_path, monkeypatch):
    run(tmp_path / "straight")
    real = checkpoint.write_and_sync

    def full(at, name, data):
        if b'"iteration": 8' in data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(at, name, data)

    monkeypatch.setattr(checkpoint, "write_and_sync", full)
    with pytest.raises(CheckpointError, match=r"no space left .* iteration 8"):
        run(tmp_path / "run")
    monkeypatch.undo()
    assert load_latest(tmp_path / "run" / "checkpoints").iteration == 4
    go_on(tmp_path / "run")
    assert whole(tmp_path / "run") == whole(tmp_path / "straight")


def test_a_run_that_fails_before_its_first_checkpoint_can_be_resumed(tmp_path, monkeypatch):
    run(tmp_path / "straight")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint, "write_and_sync", full)
    with pytest.raises(CheckpointError, match=r"no space left .* then resume") as caught:
        run(tmp_path / "run")
    assert "earlier checkpoints" not in str(caught.value)
    monkeypatch.setattr("trellis.runs.folder.write_file", full)
    with pytest.raises(RunFolderError, match=r"cannot write .*No space left"):
        run(tmp_path / "again")
    monkeypatch.undo()
    go_on(tmp_path / "run")
    run(tmp_path / "again")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "config.json.tmp").touch()  # As an earlier version leaves it.
    (tmp_path / "killed" / ".config.json.12ab.tmp").touch()
    run(tmp_path / "killed")
    for name in ("run", "again", "killed"):
        assert whole(tmp_path / name) == whole(tmp_path / "straight")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):  # not from the start
        go_on(tmp_path / "run")


@pytest.mark.parametrize("finished", [False, True])
def test_two_runs_that_begin_in_one_folder(tmp_path, finished):
    """The second has found the folder empty before the first took it."""
    path = tmp_path / "run"

    class Slow(FakeTrainer):
        def start(self):
            if finished:
                run(path)
            else:
                write_config(path, CONFIG)
            return super().start()

    other = dataclasses.replace(CONFIG, seed=77)
    slow: Any = Slow(other)
    with pytest.raises(RunFolderError, match="holds a run already"):
        train(slow, path, quiet=True, tensorboard=False)
    assert read_config(path) == CONFIG
    assert not finished or len(read_metrics(path)) == 10


def test_a_run_that_is_taken_up_stays_as_it_is(tmp_path):
    """Between reading its settings and going on, nobody else may change them."""
    run(tmp_path / "run", callbacks=[lambda *_: False])

    def make(config):
        with (
            pytest.raises(RunFolderError, match="another process"),
            folder.locked(tmp_path / "run"),
        ):
            pass
        return FakeTrainer(config)

    resume(tmp_path / "run", make_trainer=make, quiet=True, tensorboard=False)  # pyright: ignore


def test_nobody_listens(tmp_path, monkeypatch):
    """Standard error is a pipe that was closed at the other end."""
    reading, writing = os.pipe()
    os.close(reading)
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        stream = os.fdopen(writing, "w")
        monkeypatch.setattr(sys, "stderr", stream)
        trainer: Any = FakeTrainer(CONFIG, at(3, lambda: os.kill(os.getpid(), signal.SIGTERM)))
        with pytest.raises(RunInterrupted):
            train(trainer, tmp_path / "run", tensorboard=False)
        say("so it is")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        with contextlib.suppress(OSError):
            stream.close()
    assert load_latest(tmp_path / "run" / "checkpoints").iteration == 3


def test_a_folder_that_is_in_use_is_refused(tmp_path):
    run(tmp_path / "run")
    with pytest.raises(RunFolderError, match=r"holds a run already.*trellis resume"):
        run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(RunFolderError, match=r"not empty.*--out"):
        run(tmp_path / "other")
    with pytest.raises(RunFolderError, match="exists"):
        run(tmp_path / "other" / "thesis.tex")
    with pytest.raises(RunFolderError, match="is not a run"):
        go_on(tmp_path / "other")
    with pytest.raises(RunFolderError, match="cannot write"):
        run(tmp_path / "other" / "thesis.tex" / "run")
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty").steps == 100


def test_a_trainer_of_another_run_is_refused_with_the_difference(tmp_path):
    run(tmp_path)
    other = dataclasses.replace(CONFIG, env="Other-v0", sampling=SamplingConfig(num_envs=5))
    with pytest.raises(RunFolderError) as caught:
        run(tmp_path, other, resume=True)
    assert "env is 'Fake-v0' there, 'Other-v0' here" in str(caught.value)
    assert "sampling.num_envs is 2 there, 5 here" in str(caught.value)
    assert read_config(tmp_path) == CONFIG
    rarer = dataclasses.replace(CONFIG, checkpoint_every=1000, total_steps=120)
    assert run(tmp_path, rarer, resume=True).steps == 120
    assert read_config(tmp_path) == rarer


def test_a_configuration_that_cannot_be_read_says_why(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"config.json cannot be read"):
        go_on(tmp_path)


def test_two_processes_do_not_train_in_one_folder(tmp_path, monkeypatch):
    run(tmp_path)
    monkeypatch.setattr(folder, "LOCK_SECONDS", 0.1)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(RunFolderError, match="used by another process"):
        go_on(tmp_path, steps=120)
    assert read_config(tmp_path) == CONFIG
    os.close(held)
    assert go_on(tmp_path, steps=120).steps == 120


def test_nothing_grows_in_place_of_a_folder_that_disappears(tmp_path):
    path, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with pytest.raises(RunFolderError, match="disappeared during training"):
        run(path, during=at(7, lambda: path.rename(elsewhere)))
    assert not path.exists()
    assert load_latest(elsewhere / "checkpoints").iteration == 4
    assert go_on(elsewhere).iteration == 10


def test_other_versions_are_told(tmp_path, monkeypatch):
    run(tmp_path)
    there = {**checkpoint.installed_versions(), "jax": "9.9.9"}
    monkeypatch.setattr(checkpoint, "installed_versions", lambda: there)
    with pytest.warns(UserWarning, match=r"jax [\d.]+, here 9.9.9.*bit for bit"):
        go_on(tmp_path)


def test_resume_closes_the_trainer_it_made(tmp_path):
    made = []

    def make(config: TrainConfig) -> Any:
        made.append(FakeTrainer(config, at(12, crash)))
        return made[-1]

    run(tmp_path)
    with contextlib.suppress(BadValueError):
        resume(tmp_path, steps=150, make_trainer=make, quiet=True, tensorboard=False)
    assert made[0].closed


@pytest.mark.slow
def test_memory_does_not_grow_with_iterations(tmp_path):
    sizes = []

    def measure(state, _):
        if state.iteration in (200, 700):
            gc.collect()  # JSON's own encoders and decoders are cycles of objects.
            sizes.append(tracemalloc.get_traced_memory()[0])

    config = dataclasses.replace(
        CONFIG, total_steps=700 * BATCH, eval_every=0, checkpoint_every=200 * BATCH
    )
    tracemalloc.start()
    try:
        trainer: Any = FakeTrainer(config)
        train(trainer, tmp_path, callbacks=[measure], quiet=True, tensorboard=True)
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 10_000, "an object of 20 bytes an iteration would show"
