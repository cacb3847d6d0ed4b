"""Every Python and shell block of README, Guide and Reference runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Runner, Task, tasks_of
from tests.docs.run_pages import find_pages

PAGES = find_pages()
TASKS = {page: tasks_of(page, (ROOT / page).read_text("utf-8")) for page in PAGES}
RUNNABLE = [page for page in PAGES if any(task.not_run is None for task in TASKS[page])]
NOT_RUN = [task for page in PAGES for task in TASKS[page] if task.not_run is not None]


def run_pages(*arguments: str, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.run_pages", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **variables},
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


@pytest.mark.pages
def test_pages_run_shortened():
    # Programs that run twice are not worth optimizing.
    run_pages("--short", *map(str, RUNNABLE), JAX_DISABLE_MOST_OPTIMIZATIONS="1")


@pytest.mark.slow
@pytest.mark.timeout(3600)  # README trains a million steps, however busy the machine is.
@pytest.mark.parametrize("page", RUNNABLE, ids=str)
def test_page_runs_as_written(page):
    run_pages(str(page))


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


def test_a_block_waits_for_the_modules_it_needs():
    page = "<!-- needs: json no_such_module -->\n<!-- slow -->\n```python\nx = 1\n```\n"
    (task,) = tasks_of(Path("page.md"), page)
    assert task.slow
    assert task.missing == ["no_such_module"]
    assert not Task(Path("page.md"), 1, "python", "", needs=("json",)).missing


@pytest.mark.parametrize("fence", ["", "shell", "py"])
def test_a_block_needs_a_known_language(fence):
    with pytest.raises(ValueError, match="language"):
        tasks_of(Path("page.md"), f"```{fence}\nx\n```\n")


def test_an_unknown_comment_is_refused():
    with pytest.raises(ValueError, match="not known"):
        tasks_of(Path("page.md"), "<!-- not run -->\n```sh\nls\n```\n")


@pytest.mark.parametrize("short", [True, False])
def test_a_failing_block_fails(short, tmp_path):
    task = Task(Path("page.md"), 1, "sh", "false\n")
    with pytest.raises(AssertionError, match="exit code 1"):
        Runner(tmp_path, short=short).run(task)


SCRIPT = """
for name in one two; do
  python $name.py "an argument" > $name.txt
done
test -f none.txt || trellis --version | cut -d " " -f 1 > version.txt
! trellis eval nowhere
"""


def test_a_script_calls_this_process(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(f"import sys; print({name!r}, sys.argv[1])")
    Runner(tmp_path, short=True).run(Task(Path("page.md"), 1, "sh", SCRIPT))
    assert (tmp_path / "one.txt").read_text() == "one an argument\n"
    assert (tmp_path / "two.txt").read_text() == "two an argument\n"
    assert (tmp_path / "version.txt").read_text() == "trellis\n"


def test_an_error_in_a_script_is_shown(tmp_path):
    task = Task(Path("page.md"), 1, "sh", "trellis eval nowhere\n")
    with pytest.raises(AssertionError, match="nowhere is not a run"):
        Runner(tmp_path, short=True).run(task)
