"""The experiment end to end, small: what it writes, and that its claims hold in it."""

import csv
import json
import shutil

import pytest

pytest.importorskip("matplotlib")

from tests.reproduce.pages import check_page, claims
from trellis.reproduce.theory.experiment import Theory, TheorySweep
from trellis.reproduce.theory.table import COLUMNS
from trellis.runs.provenance import commit

SMALL = TheorySweep(
    states=6,
    actions=3,
    branching=2,
    garnet_gammas=(0.5, 0.9),
    chain_states=4,
    radii=(0.1,),
    iterations=12,
    distances=(0.01, 1.0),
    step_gammas=(0.5, 0.9, 0.99),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    Theory(out, seeds=2).run(print, SMALL)
    return out, json.loads((out / "theory.json").read_text(encoding="utf-8"))


def test_writes_json_table_and_figure(results):
    out, found = results
    assert found["command"].startswith("trellis reproduce theory --out")
    assert found["commit"] == commit()
    with (out / "theory.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) == len(found["learning"]) == 4 * 5
    assert (out / "theory.png").stat().st_size > 10_000
    assert "NaN" not in (out / "theory.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_figure_and_page_need_the_data_files_alone(results, tmp_path):
    for name in ("theory.json", "theory.csv"):
        shutil.copy(results[0] / name, tmp_path)
    Theory(tmp_path, report_only=True).write_pages()
    for name in ("theory.png", "theory.svg", "README.md"):
        assert (tmp_path / name).read_bytes() == (results[0] / name).read_bytes()


def test_the_page_has_the_claims(results):
    found = claims(check_page(results[0]))
    assert [claim[1] for claim in found] == ["holds", "holds", "holds", "holds"]
    assert found[0][2] == "0 falls on 4 problems"


def test_nothing_falls_and_every_certificate_holds(results):
    for row in results[1]["learning"]:
        assert row["falls"] == row["broken_certificates"] == 0
        assert row["closed_mean"][0] == 0.0
        assert 0.0 < row["closed_mean"][-1] <= 1.0 + 1e-9
        if row["method"] == "Algorithm 1":
            assert row["certified_share"] == 1.0
        if row["method"] == "policy iteration":
            assert row["closed_mean"][-1] == pytest.approx(1.0)


def test_bounds_are_in_order_and_steps_shrink(results):
    for row in results[1]["tightness"]:
        assert row["error"] <= row["appendix_a"] <= row["theorem1"]
        assert row["error"] <= row["eq6"]
        # The greedy policy has zeros, so at the full step the divergence is infinite: no number.
        assert row["kl_form"] is None or row["kl_form"] >= row["theorem1"]
    steps = [row["max_kl"] for row in results[1]["steps"]]
    assert steps == sorted(steps, reverse=True)
