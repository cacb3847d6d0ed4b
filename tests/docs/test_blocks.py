"""Every Python and shell block of README, Guide and Reference runs."""

from pathlib import Path

import pytest

from tests.docs import metrics
from tests.docs.blocks import ROOT, Runner, Task, clean_process, shell_lines, shorten, tasks_of

PAGES = [
    Path("README.md"),
    *sorted(path.relative_to(ROOT) for path in (ROOT / "docs/guide").glob("*.md")),
    *sorted(path.relative_to(ROOT) for path in (ROOT / "docs/reference").glob("*.md")),
]
TASKS = {page: tasks_of(page, (ROOT / page).read_text("utf-8")) for page in PAGES}
RUNNABLE = [page for page in PAGES if any(task.not_run is None for task in TASKS[page])]
NOT_RUN = [task for page in PAGES for task in TASKS[page] if task.not_run is not None]


def run_page(page: Path, folder: Path, *, short: bool) -> None:
    with clean_process(folder):
        runner = Runner(folder, short=short)
        for task in TASKS[page]:
            if task.not_run is None and not (short and task.slow):
                runner.run(task)


@pytest.mark.parametrize("page", RUNNABLE, ids=str)
def test_page_runs_shortened(page, tmp_path, monkeypatch):
    shorten(monkeypatch)
    run_page(page, tmp_path, short=True)
    for log in tmp_path.rglob("metrics.jsonl"):
        assert metrics.logged_in(log) <= metrics.described(), "docs/reference/metrics.md lacks some"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=str)
def test_page_runs_as_written(page, tmp_path):
    run_page(page, tmp_path, short=False)


@pytest.mark.parametrize("task", NOT_RUN, ids=str)
def test_block_that_is_not_run(task):
    pytest.skip(f"{task}: {task.not_run}")


PAGE = """
Text.

<!-- setup
value = 1
-->
<!-- slow -->
```python
value += 1
```

<!-- not run: installs packages -->

```sh
pip install .
```

<!-- file: mine.py -->
```python
x = 2
```

```text
anything
```
"""


def test_comments_above_a_block_say_how_it_is_treated():
    first, second, third = tasks_of(Path("page.md"), PAGE)
    assert first == Task(Path("page.md"), 8, "python", "value += 1\n", slow=True, setup="value = 1")
    assert second.not_run == "installs packages"
    assert third.file == "mine.py"


@pytest.mark.parametrize("fence", ["", "shell", "py"])
def test_a_block_needs_a_known_language(fence):
    with pytest.raises(ValueError, match="language"):
        tasks_of(Path("page.md"), f"```{fence}\nx\n```\n")


def test_an_unknown_comment_is_refused():
    with pytest.raises(ValueError, match="not known"):
        tasks_of(Path("page.md"), "<!-- not run -->\n```sh\nls\n```\n")


def test_a_failing_block_fails(tmp_path):
    task = Task(Path("page.md"), 1, "sh", "false\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        Runner(tmp_path, short=False).run(task)


def test_a_failing_command_fails_in_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = Task(Path("page.md"), 1, "sh", "trellis eval nowhere\n")
    with pytest.raises(AssertionError, match="exit code"):
        Runner(tmp_path, short=True).run(task)


def test_shell_lines_are_joined_and_stripped():
    text = "trellis train A \\\n    --steps 1  # why\n\n# nothing\nls\n"
    assert [line.split() for line in shell_lines(text)] == [
        ["trellis", "train", "A", "--steps", "1"],
        ["ls"],
    ]
