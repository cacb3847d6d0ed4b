"""Tables of a comparison as Markdown, CSV and JSON, through the command line and by hand."""

import csv
import io
from pathlib import Path

import pytest

from trellis.analysis.tables import CSV_COLUMNS, as_csv, as_markdown
from trellis.cli.runs import _image

FOUND = {
    "score": "last evaluation",
    "groups": [
        {
            "env": "Toy-v0",
            "group": "max_kl=0.1 | a, b",
            "scores": [1.0, 2.0],
            "unfinished": ["runs/x"],
            "mean": 1.5,
            "interquartile_mean": {"value": 1.25, "low": 1.0, "high": 2000.5},
        }
    ],
    "improvement": [
        {"group": "a", "over": "b", "envs": ["Toy-v0"], "value": 0.75, "low": 0.5, "high": 1.0}
    ],
}


def test_markdown_by_hand():
    assert as_markdown(FOUND).splitlines() == [
        "**Final performance (last evaluation)**",
        "",
        "| environment | group | runs | mean | interquartile mean | 95% interval |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| Toy-v0 | max_kl=0.1 \\| a, b | 2* | 1.5 | 1.2 | 1.0 to 2,000.5 |",
        "",
        "Intervals: stratified bootstrap over runs. *: with unfinished runs (1 in all).",
        "",
        "**Probability of improvement**",
        "",
        "| group | over | shared environments | probability | 95% interval |",
        "| --- | --- | ---: | ---: | ---: |",
        "| a | b | 1 | 0.75 | 0.50 to 1.00 |",
        "",
        "Probability that a run of the first group beats a run of the second.",
    ]


def test_csv_has_plain_numbers():
    heading, row = csv.reader(io.StringIO(as_csv(FOUND)))
    assert heading == list(CSV_COLUMNS)
    values = dict(zip(heading, row, strict=True))
    assert values["group"] == "max_kl=0.1 | a, b"
    assert [float(values[name]) for name in ("mean", "low", "high")] == [1.5, 1.0, 2000.5]


@pytest.mark.parametrize(
    ("out", "format_", "path"),
    [
        (None, "auto", "curves.png"),
        (None, "svg", "curves.svg"),
        ("a", "pdf", "a.pdf"),
        ("a.svg", "auto", "a.svg"),
        ("a.svg", "svg", "a.svg"),
        ("a.eps", "auto", "a.eps"),
    ],
)
def test_an_image_has_the_ending_of_its_format(out, format_, path):
    assert _image(None if out is None else Path(out), format_) == Path(path)
    with pytest.raises(ValueError, match=r"--out a\.svg and --format png contradict each other"):
        _image(Path("a.svg"), "png")
