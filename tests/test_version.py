"""The version is the same wherever it is written."""

import re
import tomllib
from pathlib import Path

import pytest

import trellis

ROOT = Path(__file__).resolve().parents[1]


def test_pyproject_has_the_version_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == trellis.__version__


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## (\d\S*)$")],
)
def test_newest_version_in_a_file(file, pattern):
    versions = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert versions[0] == trellis.__version__
