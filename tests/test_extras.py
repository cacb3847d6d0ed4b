"""`make test-extras` knows every extra that users install."""

import tomllib
from pathlib import Path

from tools.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
FOR_DEVELOPERS = {"docs", "dev", "bench", "all"}


def test_every_extra_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - FOR_DEVELOPERS
