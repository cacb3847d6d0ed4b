"""Every relative link and anchor of the documentation leads somewhere."""

import importlib
from pathlib import Path

import pytest

from tools.docs import markdown
from tools.docs.build import ROOT, find_pages

PAGES = find_pages()
API = Path("docs/reference/api")


def problems_of(page: Path, root: Path = ROOT) -> list[str]:
    found = []
    for link in markdown.links((root / page).read_text("utf-8")):
        shown = f"{page}: {link.target}{'#' * bool(link.anchor)}{link.anchor}"
        try:
            path = markdown.resolve(page, link.target, root)
        except ValueError as error:
            found.append(str(error))
            continue
        if (root / path).is_dir():
            path /= "README.md"
        if not (root / path).is_file():
            found.append(f"{shown}: there is no {path}")
        elif link.anchor and path.suffix == ".md" and not has_anchor(path, link.anchor, root):
            found.append(f"{shown}: there is no such heading")
    return found


def has_anchor(path: Path, anchor: str, root: Path) -> bool:
    if anchor.startswith("trellis.") and path.parent == API:
        return exists(anchor)
    return anchor in markdown.anchors((root / path).read_text("utf-8"))


def exists(name: str) -> bool:
    """Whether a dotted name leads to a module, or to something in one."""
    module, *rest = name.split(".")
    value = importlib.import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        if not hasattr(value, part):
            try:
                importlib.import_module(module)
            except ImportError:
                return part in getattr(value, "__annotations__", {})
        value = getattr(value, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    assert problems_of(page) == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_has_one_title(page):
    text = (ROOT / page).read_text("utf-8")
    lines = markdown.without_code(text).splitlines()
    assert sum(line.startswith("# ") for line in lines) == 1


PAGE = """# A page

## What it does, `really`

[here](#what-it-does-really) [other](other.md#two-1) [gone](gone.md) [bad](other.md#three)
![picture](picture.png) <img src="missing.png"> [outside](https://example.org)

```text
[not a link](nowhere.md)
```
"""


def test_broken_links_are_found(tmp_path):
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "other.md").write_text("# Other\n\n## Two\n\n## Two\n")
    (tmp_path / "picture.png").touch()
    found = "\n".join(problems_of(Path("page.md"), tmp_path))
    assert "gone.md" in found
    assert "other.md#three" in found
    assert "missing.png" in found
    assert found.count("\n") == 2


def test_names_of_the_api():
    assert exists("trellis.TRPO.learn")
    assert exists("trellis.config.StepConfig.max_kl")
    assert not exists("trellis.TRPO.unlearn")
