"""Runs the code blocks of a page, in order, in one folder and one namespace.

A comment above a fence says how a block is treated:

    <!-- not run: REASON -->   never run
    <!-- needs: MODULE … -->   run where these modules are installed
    <!-- slow -->              run in `make test-slow` only
    <!-- file: NAME -->        written to a file instead of run
    <!-- setup … -->           Python that runs before the block and that readers do not see

In the fast tests training stops after two iterations and episodes after a few steps. `make
test-slow` runs the blocks as they are written.
"""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs import shell
from tools.docs import markdown

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {"python", "sh", "bash"}
"""Languages of blocks that run."""
SHOWN = {"text", "json", "toml", "console", "yaml", "diff", "bibtex", "html", "markdown", "math"}
"""Languages of blocks that are only read."""
COMMENT_ABOVE = re.compile(r"<!--(?P<text>(?:(?!<!--).)*?)-->\s*\Z", re.DOTALL)
SHORT_ITERATIONS = 2
SHORT_STEPS = 20


@dataclass(frozen=True)
class Task:
    """A block of a page and how it is treated."""

    page: Path
    """Path of the page in the repository."""
    line: int
    """Line of its fence."""
    language: str
    """Language of the block."""
    text: str
    """Its code."""
    not_run: str | None = None
    """Why it is not run; None if it is."""
    needs: tuple[str, ...] = ()
    """Modules that it needs; it is skipped where one of them is missing."""
    slow: bool = False
    """Whether it runs in the slow tests only."""
    file: str | None = None
    """Name of the file that it is written to, instead of being run."""
    setup: str = ""
    """Python that runs before it."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def missing(self) -> list[str]:
        """Modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def tasks_of(page: Path, text: str) -> list[Task]:
    """Return the blocks of a page that run, or would run if nothing said otherwise.

    Raises:
        ValueError: If a fence has no language, an unknown one, or an unknown comment above it.
    """
    tasks, lines = [], text.splitlines(keepends=True)
    for block in markdown.blocks(text):
        if block.language in SHOWN:
            continue
        if block.language not in LANGUAGES:
            known = ", ".join(sorted(LANGUAGES | SHOWN))
            raise ValueError(
                f"{page}:{block.line}: a code block has the language {block.language!r}; use one"
                f" of {known}"
            )
        how = _directives("".join(lines[: block.line - 1]), f"{page}:{block.line}")
        tasks.append(Task(page, block.line, block.language, block.text, **how))
    return tasks


def _directives(above: str, where: str) -> dict[str, Any]:
    """Return what the comments directly above a block say."""
    how: dict[str, Any] = {}
    while match := COMMENT_ABOVE.search(above):
        above = above[: match.start()]
        name, _, value = match["text"].strip().partition("\n")
        word, _, rest = name.partition(":")
        if word == "setup":
            how["setup"] = textwrap.dedent(value) + how.get("setup", "")
        elif word == "slow":
            how["slow"] = True
        elif word == "file" and rest.strip():
            how["file"] = rest.strip()
        elif word == "not run" and rest.strip():
            how["not_run"] = rest.strip()
        elif word == "needs" and rest.strip():
            how["needs"] = tuple(rest.split())
        elif word.startswith(("not", "slow", "file", "setup", "needs")):
            raise ValueError(f"{where}: the comment above this block is not known: {name}")
        else:
            break
    return how


class Runner:
    """Runs blocks in a folder.

    Args:
        folder: The current folder of all blocks.
        short: Whether to cut training and episodes.
    """

    def __init__(self, folder: Path, *, short: bool):
        self._folder, self._short = folder, short
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, task: Task) -> None:
        """Run one block; raise what it raises."""
        if task.setup:
            self._python(task.setup, f"{task} (setup)")
        if task.file:
            path = self._folder / task.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(task.text)
        elif task.language == "python":
            self._python(task.text, str(task))
        else:
            code, errors = self._shell(task)
            assert code == 0, f"{task}: exit code {code}\n{errors[-3000:]}"

    def _python(self, text: str, name: str) -> None:
        sys.path.insert(0, str(self._folder))  # As for a script in this folder.
        try:
            exec(compile(text, name, "exec"), self._namespace)
        finally:
            sys.path.remove(str(self._folder))

    def _shell(self, task: Task) -> tuple[int, str]:
        """Run a shell block and return its exit code and its standard error."""
        if self._short:
            server = self._folder / ".shell" / str(task.line)
            server.parent.mkdir(exist_ok=True)
            return shell.run_script(task.text, self._folder, server)
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT / "src"),
        }
        done = subprocess.run(
            ["bash", "-e", "-c", task.text],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr


def shorten() -> None:
    """Make training, evaluations and videos of this process short."""
    import trellis.agent
    import trellis.runs.run
    import trellis.training.evaluation
    from trellis.analysis import video

    advance, record = trellis.runs.run.advance, video.record

    def advance_briefly(
        trainer: Any, state: Any, is_over: Callable[[Any], bool], *args: Any, **options: Any
    ) -> Any:
        last = state.iteration + SHORT_ITERATIONS

        def is_over_soon(state: Any) -> bool:
            return state.iteration >= last or is_over(state)

        return advance(trainer, state, is_over_soon, *args, **options)

    def record_briefly(*args: Any, **options: Any) -> Any:
        return record(*args, **{**options, "episodes": 1, "max_steps": SHORT_STEPS})

    trellis.runs.run.advance = trellis.agent.advance = advance_briefly
    trellis.training.evaluation.MAX_STEPS = SHORT_STEPS
    video.record = record_briefly
