"""The log: what is in a line, what a resume cuts away, what a person sees meanwhile."""

import errno
import io
import json
import math
import os
import struct
import sys
import warnings

import numpy as np
import pytest

from trellis.config import TrainConfig
from trellis.runs.log import RunLog, read_metrics, stream_metrics
from trellis.runs.log_lines import LogError, LogWarning, add_checksum
from trellis.runs.progress import BarProgress, LineProgress, Progress, make_progress


def row(iteration: int, **more) -> dict:
    return {"iteration": iteration, "steps": 100 * iteration, "kl": 0.01 * iteration, **more}


def write(folder, iterations, *, from_iteration=0, tensorboard=False) -> None:
    with RunLog(folder, from_iteration=from_iteration, tensorboard=tensorboard) as log:
        for iteration in iterations:
            log.write(row(iteration))


def iterations(folder) -> list[int]:
    return [r["iteration"] for r in read_metrics(folder)]


def test_a_line_an_iteration_is_there_at_once(tmp_path):
    with RunLog(tmp_path, tensorboard=False) as log:
        log.write(row(1, status="accepted"))
        assert read_metrics(tmp_path) == [row(1, status="accepted")]
        log.write(row(2))
        assert iterations(tmp_path) == [1, 2]


def test_nan_is_never_written(tmp_path):
    values = {"a": math.nan, "b": np.float32("inf"), "c": np.int64(3), "d": np.array(0.5)}
    with RunLog(tmp_path, tensorboard=False) as log:
        log.write(row(1, **values))
    text = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    written = json.loads(text)
    assert written.pop("checksum")
    assert written == row(1, a=None, b=None, c=3, d=0.5)


def test_what_is_no_number_and_no_word_is_refused_by_name(tmp_path):
    with RunLog(tmp_path, tensorboard=False) as log, pytest.raises(TypeError, match="returns"):
        log.write(row(1, returns=np.zeros(3)))
    assert read_metrics(tmp_path) == []


def test_resume_cuts_later_iterations(tmp_path):
    write(tmp_path, range(1, 8))
    kept = b"".join((tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)[:4])
    write(tmp_path, [], from_iteration=4)
    assert iterations(tmp_path) == [1, 2, 3, 4]
    assert (tmp_path / "metrics.jsonl").read_bytes().startswith(kept)
    write(tmp_path, [5, 6], from_iteration=4)
    assert iterations(tmp_path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.filterwarnings("ignore::trellis.runs.log_lines.LogWarning")
def test_every_possible_half_line_is_left_out_and_cut(tmp_path):
    write(tmp_path, [1, 2])
    whole = (tmp_path / "metrics.jsonl").read_bytes()
    line = add_checksum(json.dumps(row(3)).encode())
    for length in range(1, len(line)):
        (tmp_path / "metrics.jsonl").write_bytes(whole + line[:length])
        assert iterations(tmp_path) == [1, 2]
        write(tmp_path, [3], from_iteration=3)
        assert read_metrics(tmp_path) == [row(1), row(2), row(3)]


def lines(folder) -> list[bytes]:
    return (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda lines: [lines[0], b"{\n", lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[1].replace(b"200", b"201"), lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[2]], "iteration 2 is missing before line 2"),
        (lambda lines: [lines[0], lines[1].strip(), lines[2]], "line 2 is damaged"),
        (lambda lines: [lines[0], lines[0], lines[2]], "line 2 repeats iteration 1"),
        (lambda lines: [lines[0], b'{"iteration": 2, "steps": 3}\n', lines[2]], "no checksum"),
        (lambda lines: [lines[0], b"\xff\n" * 9, lines[2]], "and 4 more"),
    ],
)
def test_damage_is_left_out_and_named(tmp_path, edit, words):
    write(tmp_path, [1, 2, 3])
    damaged = b"".join(edit(lines(tmp_path)))
    (tmp_path / "metrics.jsonl").write_bytes(damaged)
    with pytest.warns(LogWarning, match=words):
        assert iterations(tmp_path) in ([1], [1, 3])
    with pytest.warns(LogWarning, match=words):
        write(tmp_path, [4], from_iteration=3)
    if len(lines(tmp_path)) > 2:
        assert lines(tmp_path)[-2:-1] == lines_of(damaged)[-1:]  # What is damaged stays.


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def test_rows_that_are_missing_at_the_end_are_named(tmp_path):
    write(tmp_path, [1, 2])
    with pytest.warns(LogWarning, match="iterations 3 to 5 are missing at the end"):
        assert len(list(stream_metrics(tmp_path, newest=5))) == 2


def test_a_log_that_starts_late_says_so_once(tmp_path):
    """The log of a saved agent that is resumed as a run starts at a later iteration."""
    with pytest.warns(LogWarning, match="iterations 1 to 4 are missing at the end"):
        log = RunLog(tmp_path, from_iteration=4, tensorboard=False)
    with log, warnings.catch_warnings():
        warnings.simplefilter("error")
        log.write(row(5))
        log.write(row(6))
        assert read_metrics(tmp_path) == [row(5), row(6)]
        write(tmp_path, [6, 7], from_iteration=5)
        assert read_metrics(tmp_path) == [row(5), row(6), row(7)]


def test_a_line_that_cannot_be_a_row_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b" " * 70_000 + b"\n")
    with pytest.raises(LogError, match=r"line 1 of .* longer than 65,536 bytes"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"\n" * 1_001)
    with pytest.raises(LogError, match="more than 1,000 damaged lines"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    with RunLog(tmp_path, tensorboard=False) as log, pytest.raises(TypeError, match="fewer"):
        log.write(row(1, long="x" * 70_000))


def test_a_log_without_checksums_gets_them_on_resume(tmp_path):
    old = b"".join(json.dumps(row(i)).encode() + b"\n" for i in (1, 2, 3))
    (tmp_path / "metrics.jsonl").write_bytes(old)
    with pytest.warns(LogWarning, match="first 3 lines have no checksum"):
        assert iterations(tmp_path) == [1, 2, 3]
    with pytest.warns(LogWarning, match="first 2 lines have no checksum"):
        write(tmp_path, [3], from_iteration=2)
    new = tmp_path / "new"
    new.mkdir()
    write(new, [1, 2, 3])
    assert lines(tmp_path) == lines(new)


def test_a_log_with_two_names_is_copied_and_not_changed_in_place(tmp_path):
    write(tmp_path, [1, 2, 3])
    before = (tmp_path / "metrics.jsonl").read_bytes()
    os.link(tmp_path / "metrics.jsonl", tmp_path / "other")
    write(tmp_path, [3], from_iteration=2)
    assert iterations(tmp_path) == [1, 2, 3]
    assert (tmp_path / "other").read_bytes() == before
    assert (tmp_path / "other").stat().st_nlink == 1


def test_no_space_says_so_and_leaves_a_log_that_can_be_read(tmp_path, monkeypatch):
    log = RunLog(tmp_path, tensorboard=False)
    log.write(row(1))
    real = log._file

    class Full:
        def write(self, data):
            if len(data) > 10:
                return real.write(data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self):
            real.close()

    monkeypatch.setattr(log, "_file", Full())
    with pytest.raises(LogError, match=r"No space left.*resume"), log:
        log.write(row(2, long="x" * 12))
    assert iterations(tmp_path) == [1]
    write(tmp_path, [2], from_iteration=1)
    assert iterations(tmp_path) == [1, 2]


def events(folder) -> list:
    """All TensorBoard events, read by the format: length, checksum, message, checksum."""
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    found = []
    for path in sorted((folder / "tensorboard").iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def test_tensorboard_gets_the_numbers_and_a_purge_on_resume(tmp_path):
    with RunLog(tmp_path) as log:
        for iteration in (1, 2, 3):
            log.write(row(iteration, status="accepted", missing=None))
    write(tmp_path, [3], from_iteration=2, tensorboard=True)
    scalars = [(e.step, {v.tag: v.simple_value for v in e.summary.value}) for e in events(tmp_path)]
    scalars = [(step, values) for step, values in scalars if values]
    assert [step for step, _ in scalars] == [100, 200, 300, 300]
    assert scalars[0][1].keys() == {"time/iteration", "time/steps", "step/kl"}
    assert scalars[1][1]["step/kl"] == pytest.approx(0.02)
    starts = [e.step for e in events(tmp_path) if e.HasField("session_log")]
    assert starts == [201]  # TensorBoard hides what an earlier file says from here on.


def test_tensorboard_forgets_an_attempt_that_begins_again(tmp_path):
    for _ in range(2):
        with RunLog(tmp_path) as log:
            log.write(row(1))
    assert [e.step for e in events(tmp_path) if e.HasField("session_log")] == [1]


def test_tensorboard_is_not_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", None)
    write(tmp_path, [1], tensorboard=True)
    assert iterations(tmp_path) == [1]
    assert not (tmp_path / "tensorboard").exists()


def run_of(steps, **settings):
    return TrainConfig("CartPole-v1", total_steps=steps, **settings)


def test_plain_lines_every_few_seconds_and_the_last():
    now, stream = [0.0], io.StringIO()
    with LineProgress(run_of(10_000), stream=stream, every=5, clock=lambda: now[0]) as progress:
        for iteration in range(1, 14):  # One a second: 100 steps each.
            now[0] += 1
            progress.update(
                row(iteration, episode_return_mean=1234.56, steps_per_second=100.0)
                if iteration != 13
                else row(iteration)
            )
    compiling, first, *lines = stream.getvalue().splitlines()
    assert compiling == "Compiling the first iteration …"
    assert first == "iteration 1  100/10,000 steps  return 1,234.6  KL 0.01  100 steps/s"
    assert [line.split("  ")[0] for line in lines] == [
        "iteration 6",
        "iteration 11",
        "iteration 13",
    ]
    assert "600/10,000 steps" in lines[0]
    assert "KL 0.06" in lines[0]
    assert "1:35 left" in lines[0]  # 9,400 steps at 100 a second, rounded up.
    assert "return" not in lines[2]  # No episode ended: nothing is better than nan.


def test_the_time_left_is_that_until_the_limit_which_comes_first():
    now, stream, config = [0.0], io.StringIO(), run_of(10_000, max_iterations=20)
    with LineProgress(config, stream=stream, every=0, clock=lambda: now[0]) as progress:
        for iteration in range(1, 6):
            now[0] += 1
            progress.update(row(iteration))
    lines = stream.getvalue().splitlines()
    assert "left" not in lines[1]  # The first one compiles, and is no measure.
    assert "0:15 left" in lines[-1]  # 15 iterations; 9,500 steps would take a minute and a half.


def test_an_evaluation_is_shown_at_once_and_kept_in_sight():
    stream = io.StringIO()
    with LineProgress(run_of(1000), stream=stream, every=1e9) as progress:
        progress.update(row(1))
        progress.update(row(2, eval_return_mean=7.0))
        progress.update(row(3))
    _, first, *lines = stream.getvalue().splitlines()
    assert "evaluation" not in first
    assert [line.split("  ")[0] for line in lines] == ["iteration 2", "iteration 3"]
    assert all("evaluation 7.0" in line for line in lines)


def test_a_terminal_gets_a_bar_a_pipe_gets_lines_and_quiet_is_quiet(monkeypatch, capsys):
    assert isinstance(make_progress(run_of(10)), LineProgress)
    assert type(make_progress(run_of(10), quiet=True)) is Progress
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    bar = make_progress(run_of(1000))
    assert isinstance(bar, BarProgress)
    with bar:
        bar.update(row(5, episode_return_mean=12.0, steps_per_second=50.0))
    shown = capsys.readouterr().err
    assert "iteration 5" in shown
    assert "500/1,000 steps" in shown
    assert "return 12.0" in shown


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_the_bar_fits_into_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    with make_progress(run_of(1_000_000)) as bar:
        for iteration in (4_000, 4_001):
            values = {"episode_return_mean": 1234.5, "eval_return_mean": 2345.6}
            bar.update(row(iteration, **values, steps_per_second=23456.0, kl=0.0099))
    shown = capsys.readouterr().err
    assert "…" not in shown
    assert "return 1,234.5 evaluation 2,345.6" in shown
    assert ("400,100/1,000,000 steps" in shown) == (columns >= 100)
    assert ("KL 0.0099" in shown) == ("iteration 4,001" in shown) == (columns >= 120)


def test_event_files_are_rotated_and_bounded(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr("trellis.runs.events.EVENT_FILE_BYTES", 2_000)
    monkeypatch.setattr("trellis.runs.events.EVENT_BYTES", 10_000)
    write(tmp_path, range(1, 40), tensorboard=True)
    few = sorted((tmp_path / "tensorboard").iterdir())
    assert 1 < len(few) < 6
    assert all(path.stat().st_size < 2_500 for path in few)
    write(tmp_path, range(40, 1000), from_iteration=39, tensorboard=True)
    files = sorted((tmp_path / "tensorboard").iterdir())
    assert sum(path.stat().st_size for path in files) < 10_500
    assert few[0] not in files
    last = [event for event in events(tmp_path) if event.summary.value][-1]
    assert last.step == read_metrics(tmp_path)[-1]["steps"]
    assert len(read_metrics(tmp_path)) == 999
