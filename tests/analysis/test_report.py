"""The report: what it says, what it escapes, and how large it gets."""

import base64
import dataclasses
import html
import json
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from trellis import presets
from trellis.analysis.commands import train_command
from trellis.analysis.report import watch, write_report
from trellis.analysis.report import write as writing
from trellis.analysis.report.markup import element, json_script
from trellis.analysis.report.points import Points
from trellis.analysis.report.read import Evaluation, read_run
from trellis.analysis.report.tables import final_score
from trellis.cli import train_options
from trellis.cli.main import main
from trellis.config import TrainConfig
from trellis.runs.folder import write_config
from trellis.runs.log import RunLog

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def make_run(
    folder: Path, *, seed=0, rows=40, total=None, max_kl=0.01, status="accepted", **fields
):
    """A run folder with a log of its own; no training."""
    config = presets.resolve("CartPole-v1")
    step = dataclasses.replace(config.step, max_kl=max_kl)
    config = dataclasses.replace(
        config, seed=seed, total_steps=total or rows * 100, step=step, **fields
    )
    write_config(folder, config)
    rng = np.random.default_rng(seed)
    with RunLog(folder, tensorboard=False) as log:
        for i in range(1, rows + 1):
            row = {
                "iteration": i,
                "steps": i * 100,
                "episodes": 2,
                "episode_return_mean": 5.0 * i + rng.normal(),
                "episode_length_mean": 5.0 * i,
                "kl": 0.5 * max_kl,
                "step_fraction": 1.0 if i % 4 else 0.8,
                "backtracks": 0 if i % 4 else 1,
                "cg_residual": 0.01 * i,
                "explained_variance": 1 - 1 / i,
                "entropy": 2.0 - 0.01 * i,
                "status": status if i % 5 else "no_improvement",
                "seconds_sampling": 0.1,
                "seconds_update": 0.1,
            }
            if i % 10 == 0:
                row |= {"eval_return_mean": 10.0 * i, "eval_return_std": 3.0}
            log.write(row)
    return folder


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found[1])


def cells_of(text, caption):
    """The rows of a table as lists of texts."""
    inner = re.search(rf"<caption>{caption}</caption>(.*?)</table>", text, re.S)[1]
    rows = re.findall(r"<tr>(.*?)</tr>", inner, re.S)
    return [[html.unescape(c) for c in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", r)] for r in rows]


def test_it_groups_runs_and_counts_steps(tmp_path):
    runs = [
        make_run(tmp_path / f"{kl}-{s}", seed=s, max_kl=kl) for kl in (0.01, 0.02) for s in (0, 1)
    ]
    report = write_report(runs, tmp_path / "report.html")
    text = report.path.read_text()
    heading, *rows = cells_of(text, "Evaluations")
    assert [row[:2] for row in rows] == [
        ["CartPole-v1", f"trpo, modern/classic, max_kl={kl} (2 seeds)"] for kl in (0.01, 0.02)
    ]
    assert dict(zip(heading, rows[0], strict=True)) | {"State": "finished"} == {
        **dict(zip(heading, rows[0], strict=True)),
        "Steps": "4,000",
        "Last evaluation": "400",
        "95% interval": "400 to 400",
        "Over": "2 seeds",
        "Best evaluation": "400",
    }
    heading, first, _ = cells_of(text, "Averages over all iterations")
    health = dict(zip(heading, first, strict=True))
    assert health["Full steps"] == "75%"
    assert health["Accepted"] == "80%"
    assert health["Mean KL / δ"] == "0.5"
    assert health["Backtracks"] == "0.25"
    assert health["CG residual"] == "0.2"  # mean of 0.01 to 0.40
    assert health["Entropy"] == "1.99 → 1.6"
    assert health["Statuses"] == "accepted 64, no_improvement 16"
    differences = cells_of(text, "Settings that differ between groups")
    assert differences[1:] == [["step.max_kl", "0.01", "0.02"]]
    groups = data_of(text)["envs"][0]["groups"]
    assert [len(group["runs"]) for group in groups] == [2, 2]
    assert groups[1]["bound"] == 0.02
    assert groups[0]["quantile"] == pytest.approx(12.7062)  # Student's t, one degree of freedom


def test_the_interval_of_one_run_is_over_its_episodes():
    estimate, over = final_score([Evaluation(100, 50.0, 3.0)], 10)
    # The standard deviation of the log divides by n, that of Student's interval by n − 1.
    sample = np.array([-1.0, 1.0] * 5) * 3.0
    half = 2.262157 * sample.std(ddof=1) / np.sqrt(10)
    assert over == "10 episodes"
    np.testing.assert_allclose([estimate.low, estimate.high], [50 - half, 50 + half], rtol=1e-6)


def test_points_are_means_of_equally_many_iterations():
    points = Points(8)
    for i in range(1, 41):
        points.add({"iteration": i, "steps": 10 * i, "kl": float(i), "seconds_update": 1.0})
    curves = points.to_json()
    # Widths double when there are 8: 8, 16 and 32 iterations were full, so each point has 8.
    assert curves["iteration"] == [8, 16, 24, 32, 40]
    assert curves["kl"] == [4.5, 12.5, 20.5, 28.5, 36.5]
    assert curves["seconds"] == [8, 16, 24, 32, 40]
    assert "entropy" not in curves


def test_an_interruption_does_not_count_as_training_time():
    points = Points(64)
    for i in range(1, 31):
        seconds = 1000.0 if i == 20 else 1.0
        points.add({"iteration": i, "steps": i, "kl": 0.0, "seconds_update": seconds})
    assert points.to_json()["seconds"][-1] == 30


def test_the_size_does_not_grow_with_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MOST_POINTS", 32)
    sizes = []
    for rows in (200, 800):
        run = make_run(tmp_path / str(rows), rows=rows)
        report = write_report([run], tmp_path / "report.html")
        sizes.append(report.size)
        curves = data_of(report.path.read_text())["envs"][0]["groups"][0]["runs"][0]["points"]
        assert len(curves["kl"]) <= writing.MOST_POINTS
    assert max(sizes) < 1.05 * min(sizes)


def test_many_runs_stay_under_5_mb():
    """The most numbers of a report, at the most bytes per number."""
    points = Points(writing.FEWEST_POINTS)
    for i in range(1, 1000):
        points.add(
            dict.fromkeys(points_names(), -1.2345e-05 * i) | {"iteration": i, "steps": 1e9 + i}
        )
    per_run = len(json.dumps(points.to_json()))
    share = writing.MOST_NUMBERS // (writing.MOST_RUNS * 14)
    assert share >= writing.FEWEST_POINTS
    per_number = per_run / sum(map(len, points.to_json().values()))
    assert writing.MOST_NUMBERS * per_number < 4e6


def points_names():
    from trellis.analysis.report.points import CURVES

    return CURVES


def test_texts_of_a_run_are_escaped(tmp_path):
    run = make_run(tmp_path / f"run{EVIL.replace('/', '')}", status=EVIL, env_options={"x": EVIL})
    (run / f"{EVIL.replace('/', '')}.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    text = write_report([run], tmp_path / "report.html").path.read_text()
    assert "<script>alert" not in text
    assert "<img" not in text
    scripts = re.findall(r"<script([^>]*)>", text)
    assert scripts == [' type="application/json" id="data"', ""]
    assert "<" not in json_script("data", {"x": EVIL}).split(">", 1)[1].rsplit("</script>", 1)[0]
    assert element("p", EVIL, title='"><b>').count("<") == 2


def test_the_policy_allows_our_script_and_style_only(tmp_path):
    import hashlib

    run = make_run(tmp_path / "run")
    text = write_report([run], tmp_path / "report.html").path.read_text()
    policy = html.unescape(re.search(r'Security-Policy" content="(.*?)">', text)[1])
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for tag, source in (("script", "script-src"), ("style", "style-src")):
        inner = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert len(inner) == 1
        digest = base64.b64encode(hashlib.sha256(inner[0].encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert "http:" not in text.replace("http://www.w3.org", "")
    assert not re.search(r'(src|href)="(?!data:|#)', text)


def test_only_small_regular_videos_are_taken(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "a.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (run / "b.mp4").symlink_to("/etc/hostname")
    (run / "c.mp4").write_bytes(b"not a video")
    assert [video.name for video in read_run(run, 16).videos] == ["a.mp4"]
    assert "data:video/mp4;base64," in write_report([run], tmp_path / "r.html").path.read_text()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"seed": 3, "total_steps": 600_000, "eval_drawn": True},
        {"env_options": {"gravity": 5, "name": "x y"}},
        {"policy": {"hidden": (32,), "hidden_biases": False}},
        {
            "estimation": {"advantages": "raw"},
            "step": {"method": "natural-gradient", "multiplier": 0.1},
        },
    ],
    ids=str,
)
def test_the_command_leads_to_the_same_settings(change):
    config = presets.resolve("CartPole-v1", "modern/default")
    for name, value in change.items():
        if isinstance(value, dict) and name != "env_options":
            value = dataclasses.replace(getattr(config, name), **value)
        config = dataclasses.replace(config, **{name: value})
    command = train_command(config)
    assert command[:3] == ["trellis", "train", "CartPole-v1"]
    assert train_options.parse(command[2:]).settings == config


def test_a_preset_of_another_version_is_no_error():
    assert train_command(TrainConfig(env="X-v0", preset="gone"))[:3] == ["trellis", "train", "X-v0"]


def test_watch_writes_until_the_run_is_over(tmp_path):
    run = make_run(tmp_path / "run", rows=4, total=500)
    versions, first = [], threading.Event()

    def finish():
        first.wait()
        with RunLog(run, from_iteration=4, tensorboard=False) as log:
            log.write({"iteration": 5, "steps": 500, "status": "accepted", "kl": 0.01})

    def on_written(report):
        versions.append(report.path.read_text())
        first.set()

    thread = threading.Thread(target=finish)
    thread.start()
    report = watch([run], tmp_path / "report.html", seconds=0.05, on_written=on_written)
    thread.join()
    assert report.unfinished == 0
    assert data_of(versions[0])["refresh"] == 0.05
    assert 'id="refresh"' in versions[0]
    assert data_of(versions[-1])["refresh"] is None
    assert 'id="refresh"' not in versions[-1]


def test_the_command(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    out = tmp_path / "x.html"
    assert main(["report", str(run), "-o", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    assert main(["report", str(run), "-o", str(tmp_path / "x.pdf")]) == 2
    assert ".html" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "gone")]) == 2
    assert "is not a run" in capsys.readouterr().err
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    assert main(["report", str(run), str(copy), "-o", str(out)]) == 2
    assert "same seed" in capsys.readouterr().err


def test_a_run_without_a_log_has_a_report(tmp_path):
    write_config(tmp_path / "run", presets.resolve("CartPole-v1"))
    assert write_report([tmp_path / "run"], tmp_path / "report.html").unfinished == 1
