"""Layout of figures: labels without overlap, at most four columns, PNG and SVG."""

import itertools

import pytest

from trellis.analysis import figures

pytest.importorskip("matplotlib")


def test_labels_keep_their_distance_and_move_little():
    assert figures.spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    close = figures.spread([0.2, 0.5, 0.52, 0.53], 0.1)
    assert close == pytest.approx([0.2, 0.41667, 0.51667, 0.61667], abs=1e-4)
    chained = figures.spread([0.5, 0.5, 0.55, 0.7], 0.1)
    assert min(b - a for a, b in itertools.pairwise(chained)) > 0.1 - 1e-9


@pytest.mark.parametrize(
    ("panels", "columns", "rows"), [(1, 1, 1), (4, 4, 1), (5, 3, 2), (7, 4, 2), (9, 3, 3)]
)
def test_a_grid_has_at_most_four_columns(tmp_path, panels, columns, rows, monkeypatch):
    seen = {}

    def subplots(found_rows, found_columns, **options):
        seen.update(rows=found_rows, columns=found_columns, width=options["figsize"][0])
        raise InterruptedError

    monkeypatch.setattr("matplotlib.pyplot.subplots", subplots)
    with pytest.raises(InterruptedError), figures.open_grid(tmp_path / "a.png", panels):
        pass
    assert (seen["columns"], seen["rows"]) == (columns, rows)
    assert seen["width"] <= figures.WIDTH


def test_a_figure_is_written_as_png_and_svg_with_the_same_bytes_each_time(tmp_path):
    for name in ("a.png", "b.png"):
        with figures.open_grid(tmp_path / name, 1, svg=True) as (_, (axis,)):
            axis.plot([0, 1, 2], [1, 3, 2])
            ends = [figures.EndLabel(2, 2, "one", "#000000"), figures.EndLabel(2, 2, "two", "red")]
            figures.label_ends(axis, ends)
    for ending in ("png", "svg"):
        first, second = (tmp_path / f"{name}.{ending}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()


def test_times_have_a_suitable_unit():
    assert figures.time_unit(100.0) == (1.0, "s")
    assert figures.time_unit(200.0) == (60.0, "min")
    assert figures.time_unit(20_000.0) == (3600.0, "h")
