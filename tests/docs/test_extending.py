"""docs/design/extending.md: its code runs, its diffs apply, and what they add can be trained."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

pytestmark = pytest.mark.pages
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "extending.md"
APPLY = ["git", "apply", "--unidiff-zero"]
"""Some hunks have no line after the change, which git takes for the end of the file by default."""
NEW_MODULE = Path("src/trellis/envs/classic/point_mass.py")
"""Where the page says to save its batched environment."""


def sections() -> dict[str, str]:
    """Return the text below each heading of the second level."""
    _, *parts = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def registry():
    """Gymnasium's registry, without what a test adds to it."""
    known = set(gymnasium.registry)
    yield gymnasium.registry
    for name in set(gymnasium.registry) - known:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("title", ["An environment", "A batched environment", "A distribution"])
def test_the_code_of_a_section_runs(title):
    code = blocks(sections()[title], "python")
    assert code
    namespace = {"__name__": "extending"}
    for block in code:
        exec(compile(block, f"{PAGE.name}: {title}", "exec"), namespace)


def diffs() -> str:
    found = blocks(PAGE.read_text(), "diff")
    assert len(found) == 2
    return "".join(found)


def pipe(text: str) -> dict[str, Any]:
    return {"input": text, "capture_output": True, "text": True}


def test_the_diffs_apply():
    done = subprocess.run([*APPLY, "--check"], cwd=ROOT, **pipe(diffs()), check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_the_diffs_add_can_be_trained(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src")
    subprocess.run(APPLY, cwd=tmp_path, **pipe(diffs()), check=True)
    pages = sections()
    (tmp_path / NEW_MODULE).write_text(blocks(pages["A batched environment"], "python")[0])
    code = "".join(blocks(pages["An update rule"], "python"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    commands = [[sys.executable, "-c", code]]
    for page in pages.values():
        for line in "".join(blocks(page, "sh")).splitlines():
            commands.append([sys.executable, "-m", *shlex.split(line)])
    assert len(commands) == 3
    for command in commands:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "point-mass" / "metrics.jsonl").exists()
    assert '"method": "trpo-relaxed"' in (tmp_path / "runs/relaxed/config.json").read_text()
