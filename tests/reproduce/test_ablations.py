"""The ablations from runs whose outcome is known: which runs, which verdicts, which files."""

import csv
import json
import shutil

import numpy as np
import pytest

from tests.reproduce.invented import write_run
from tests.reproduce.pages import check_page
from trellis.reproduce.ablations import experiment as ablations
from trellis.reproduce.ablations.claims import claims, largest_fall
from trellis.reproduce.ablations.plans import VARIATIONS
from trellis.reproduce.comparison import plans as comparison_plans
from trellis.reproduce.files import ResultsError

pytest.importorskip("matplotlib")


def test_a_variation_changes_one_setting():
    def settings(config):
        return {**vars(config.step), "sampling": config.sampling, "steps": config.total_steps}

    swimmer = comparison_plans.TASKS["swimmer"]
    theirs = settings(comparison_plans.settings(swimmer, comparison_plans.METHODS["trpo"]))
    experiment = ablations.Ablations(seeds=1)
    changed = {}
    for variation in VARIATIONS:
        (plan,) = experiment.plans(variation)
        ours = settings(plan.config)
        changed[variation.name] = {k: v for k, v in ours.items() if v != theirs[k]}
    assert changed["cg-iterations-40"] == {"cg_iterations": 40}
    assert changed["cg-iterations-10"] == changed["max-kl-0.01"] == {}
    assert changed["fisher-fraction-0.01"] == {"fisher_fraction": 0.01}
    assert changed["no-line-search-0.01"] == {"line_search": False}
    assert changed["no-line-search-0.09"] == {"line_search": False, "max_kl": 0.09}
    assert changed["penalty-9"] == {"method": "kl-penalty", "penalty": 9.0}
    assert len(changed) == len(VARIATIONS) == 23


def invent_runs(folder):
    """Two seeds of every variation; the folders that were written."""
    finals = {"penalty-0.111": -50.0, "penalty-9": 5.0, "max-kl-0.000123": 10.0, "penalty-0.333": 0}
    written = set()
    experiment = ablations.Ablations(seeds=2, scale=0.1, runs=folder)
    for variation in VARIATIONS:
        for plan in experiment.plans(variation):
            if plan.folder in written:
                continue
            written.add(plan.folder)
            last = finals.get(variation.name, 100.0 + plan.config.seed)
            seen = list(np.linspace(-100.0, last, 10))
            kl = variation.value if variation.group == "max-kl" else 0.01
            if variation.name == "no-line-search-0.09" and plan.config.seed == 1:
                seen[8] = -100.0
                kl = 0.9
            write_run(plan.folder, plan.config, seen, iteration_steps=5000, kl=kl)
    return written


@pytest.mark.slow
def test_ablations_are_judged_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_plans, "ITERATIONS", 10)
    out, runs = tmp_path / "out", tmp_path / "ablations"
    written = invent_runs(runs)
    said: list[str] = []
    found = ablations.Ablations(out, seeds=2, scale=0.1, runs=runs).run(said.append)
    # The unchanged runs are counted once, and are those of the comparison.
    assert said == [f"{len(written)} of {len(written)} runs are finished"]
    assert len(written) == 2 * (len(VARIATIONS) - 2)
    text = (out / "ablations.json").read_text()
    assert json.loads(text) == found
    assert len(text.splitlines()) < 35 * len(written)  # A curve's hundreds of numbers on one.
    line_search, cg, fisher, penalty = found["claims"]
    assert line_search["holds"]
    assert line_search["verdict"] == "holds"
    assert line_search["evidence"].startswith("catastrophes: 1/4 runs without, 0/4 with")
    without, with_ = line_search["cases"][2:]
    assert (without["largest KL"], without["catastrophes"]) == ("10.00 δ", "1 of 2 runs")
    assert (with_["largest KL"], with_["catastrophes"]) == ("1.00 δ", "0 of 2 runs")
    assert cg["holds"]
    assert fisher["holds"]
    # 5,000 samples in a scaled iteration: 1% of them are fewer than the least that is used.
    least, *_ = (row for row in found["rows"] if row["group"] == "fisher-fraction")
    assert (least["asked"], least["value"]) == (0.01, 0.2)
    assert penalty["holds"]
    assert penalty["evidence"] == "within 10% of the best gain: δ 4/5 values, C 2/5 values"
    with (out / "ablations.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2 * len(VARIATIONS)
    assert (out / "ablations.png").stat().st_size > 50_000
    assert (out / "ablations.svg").stat().st_size > 10_000
    page = check_page(out)
    assert page.count("### ") == 4
    # The page and the figure need the data file alone, also for a folder of another scale.
    (out / "README.md").unlink()
    shutil.rmtree(runs)
    monkeypatch.setattr(ablations.figure, "plot", lambda *_: None)
    ablations.Ablations(out, report_only=True).write_pages()
    assert (out / "README.md").read_text() == page
    assert json.loads((out / "ablations.json").read_text()) == found
    shutil.copytree(out, out / "small", ignore=shutil.ignore_patterns("README.md"))
    ablations.Ablations(out / "small", report_only=True).write_pages()
    assert not (out / "small" / "README.md").exists()  # It is on the page of the parent.
    both = check_page(out)
    assert both.count("### ") == 8
    assert "[Line search (small)](#line-search-small)" in both
    with pytest.raises(ResultsError, match="leave out --report-only"):
        ablations.Ablations(tmp_path / "empty", report_only=True).write_pages()
    # The runs are gone, but their logs are kept: nothing is trained again.
    shutil.rmtree(tmp_path / "comparison")
    again = ablations.Ablations(out, seeds=2, scale=0.1, runs=runs).run(said.append)
    assert said[-1] == said[0]
    assert [claim["verdict"] for claim in again["claims"]] == ["holds"] * 4
    assert not runs.exists()


@pytest.mark.slow
def test_parts_that_are_run_later_are_added(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison_plans, "ITERATIONS", 10)
    out, runs = tmp_path / "out", tmp_path / "ablations"
    invent_runs(runs)

    def run(*parts, scale=0.1, seeds=2, **options):
        chosen = {"parts": parts, **options} if parts else options
        experiment = ablations.Ablations(out, seeds=seeds, scale=scale, runs=runs, **chosen)
        return experiment.run(lambda _: None)

    def without_maker(rows):
        return [{k: v for k, v in r.items() if k not in ("command", "commit")} for r in rows]

    plotted = []
    with monkeypatch.context() as without:
        without.setattr(ablations.figure, "plot", lambda *_: plotted.append(1))
        again = run()
        (out / "ablations.json").unlink()
        first = run("penalty")
    assert len(plotted) == 2
    assert not first["claims"]  # Whose sentence is about a constraint, too.
    second = run("cg-iterations", "max-kl")
    assert [claim["group"] for claim in second["claims"]] == ["cg-iterations", "penalty"]
    assert "--parts cg-iterations max-kl" in second["rows"][0]["command"]
    assert (out / "ablations.png").stat().st_size > 50_000  # Of what there is.
    monkeypatch.setattr(ablations.figure, "plot", lambda *_: None)
    last = run("no-line-search", "fisher-fraction")
    assert without_maker(last["rows"]) == without_maker(again["rows"])
    assert last["claims"] == again["claims"]
    with pytest.raises(ResultsError, match=r"has 2 seeds; 1 would replace them\. .*--out"):
        run("penalty", seeds=1)
    assert json.loads((out / "ablations.json").read_text()) == last
    there = r"has ablations on swimmer at scale 0\.1, not on"
    for parts in (("penalty",), ()):
        with pytest.raises(ResultsError, match=f"{there} swimmer at 1:"):
            run(*parts, scale=1.0)
    with pytest.raises(ResultsError, match=rf"{there} hopper at 0\.1:"):
        run("penalty", task="hopper")
    with pytest.raises(ValueError, match="there is no part 'cg'; choose from no-line-search"):
        ablations.Ablations(parts=("cg",))
    with pytest.raises(ValueError, match="there is no task 'ant'; choose from cartpole"):
        ablations.Ablations(task="ant")
    (hopper,) = ablations.Ablations(seeds=1, task="hopper").plans(VARIATIONS[0])
    assert hopper.config.env == "trellis/PaperHopper-v0"


def row(group, value, final, *, paper=False, fall=0.0, mean=None, high=None):
    run = {"first_return": 0.0, "largest_fall": fall, "largest_kl": value}
    estimate = {"value": final, "low": final, "high": final}
    mean = final if mean is None else mean
    over = {"value": mean, "low": None if high is None else 2 * mean - high, "high": high}
    return {
        **{"group": group, "value": value, "asked": value, "is_the_paper": paper},
        **{"final_return": estimate, "mean_return": over},
        "runs": [{**run, "seconds_update": 1.0}] * 2,
    }


def test_verdicts_can_be_negative():
    rows = [
        row("no-line-search", 0.01, 10.0, fall=2.0),
        row("max-kl", 0.01, 10.0, paper=True),
        row("max-kl", 0.1, 1.0),
        row("penalty", 1.0, 10.0),
        row("cg-iterations", 10, 10.0, paper=True, high=10.5),
        row("cg-iterations", 40, 10.0, mean=11.0, high=11.4),
        row("fisher-fraction", 0.1, 8.9, paper=True),
        row("fisher-fraction", 1.0, 10.0),
    ]
    # No fall at all says nothing about rare ones.
    assert [claim["holds"] for claim in claims(rows)] == [None, False, False, False]
    rows[5] = row("cg-iterations", 40, 10.0, mean=11.0, high=12.0)
    assert claims(rows)[1]["holds"] is None  # Ahead, but the intervals overlap.
    rows[5] = row("cg-iterations", 40, 10.0, mean=9.9, high=12.0)
    assert claims(rows)[1]["holds"] is None  # Behind, but perhaps ahead.
    rows[5] = row("cg-iterations", 40, 10.0, mean=9.9, high=10.4)
    assert claims(rows)[1]["holds"] is True
    # An interval with the limit in it decides nothing.
    for at in (3, 6):
        rows[at]["final_return"] |= {"low": 8.0, "high": 10.0}
    assert [claim["holds"] for claim in claims(rows)[2:]] == [None, None]
    rows[3], rows[6] = row("penalty", 1.0, 10.0), row("fisher-fraction", 0.1, 8.9, paper=True)
    single = [{**each, "runs": each["runs"][:1]} for each in rows]
    for each in single:
        each["mean_return"] = {**each["mean_return"], "low": None, "high": None}
    assert [claim["holds"] for claim in claims(single)] == [None] * 4  # Nobody knows.


def test_without_progress_there_is_no_verdict():
    rows = [
        row("no-line-search", 0.01, -1.0),
        row("max-kl", 0.01, -1.0, paper=True),
        row("penalty", 1.0, -50.0),
        row("cg-iterations", 10, -1.0, paper=True, high=10.5),
        row("fisher-fraction", 0.1, -50.0, paper=True),
        row("fisher-fraction", 1.0, -1.0),
    ]
    assert [c["holds"] for c in claims(rows) if c["group"] != "cg-iterations"] == [None] * 3


def test_the_largest_fall_is_from_the_best_so_far():
    assert largest_fall(np.array([0.0, 8.0, np.nan, 2.0, 10.0, 9.0])) == 6
    assert largest_fall(np.array([1.0, 2.0, 3.0])) == 0
    assert largest_fall(np.array([2.0])) == 0


def test_noise_about_no_progress_is_no_catastrophe_and_more_of_them_are_counted_for_each_limit():
    def judge(*falls):
        rows = [
            row("max-kl", 0.01, 10.0, paper=True, fall=falls[0]),
            row("no-line-search", 0.01, 10.0, fall=falls[1]),
            row("max-kl", 0.09, 10.0, fall=falls[2]),
            row("no-line-search", 0.09, 10.0, fall=falls[3]),
        ]
        return claims(rows)[0]["holds"]

    assert judge(0.0, 0.0, 0.0, 6.0) is True
    assert judge(0.0, 0.0, 0.0, 1.0) is None  # No fall by half of the gain of 10.
    assert judge(6.0, 6.0, 0.0, 6.0) is True
    assert judge(6.0, 0.0, 0.0, 6.0) is False
