"""Build the documentation site: `python -m tools.docs.build`, or `make docs`.

The site mirrors the repository, so that relative links work on a code host and in the site. This
script copies every page, and every file that a page links to, into build/docs/pages. Source files
become pages with highlighted code. MkDocs then builds build/docs/site in strict mode, and every
public name must be in the inventory of the API reference. Nothing is fetched from a network.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs import markdown
from tools.docs.public_names import documented_in_inventory, public_names

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path("build/docs")
PAGES = BUILD / "pages"
SITE = BUILD / "site"
THEME = Path("tools/docs/theme")
TOP_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")
CODE = {
    ".py": "python",
    ".toml": "toml",
    ".yml": "yaml",
    ".cff": "yaml",
    ".txt": "text",
    "Makefile": "makefile",
    "LICENSE": "text",
    "run": "bash",
}
"""Files that are shown as pages with highlighted code, by suffix or name."""


def find_pages(root: Path = ROOT) -> list[Path]:
    """Return the Markdown pages of the documentation, relative to `root`."""
    found = [root / name for name in TOP_PAGES]
    found += sorted((root / "docs").rglob("*.md"))
    found += sorted((root / "results").rglob("README.md"))
    return [path.relative_to(root) for path in found]


def assemble(root: Path, target: Path) -> list[str]:
    """Write the pages, and the files that they link to, into `target`.

    Returns:
        A message for each link that leads nowhere.
    """
    waiting, written, problems, linked = find_pages(root), set(), [], set()
    shutil.rmtree(target, ignore_errors=True)
    while waiting:
        page = waiting.pop()
        written.add(page)
        try:
            text, files = _with_site_links((root / page).read_text("utf-8"), page, root)
        except ValueError as error:
            problems.append(str(error))
            continue
        _write(target / page, text)
        pages = {path for path in files if path.suffix == ".md" and (root / path).is_file()}
        waiting += pages - written - set(waiting)
        linked |= files - pages
    for path in sorted(linked):
        if not (root / path).exists():
            problems.append(f"a page links to {path.as_posix()}, which does not exist")
        elif _language(path):
            _write(target / _source_page(path), _as_page(root, path))
        else:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, target / path)
    shutil.copytree(root / THEME, target / "assets", dirs_exist_ok=True)
    return problems


def _with_site_links(text: str, page: Path, root: Path) -> tuple[str, set[Path]]:
    """Return a page whose links to folders and source files lead to pages, and all its targets."""
    files, pieces, last = set(), [], 0
    for link in markdown.links(text):
        if not link.target:
            continue
        path, target = markdown.resolve(page, link.target, root), link.target
        if (root / path).is_dir():
            path, target = path / "README.md", f"{target.rstrip('/')}/README.md"
        files.add(path)
        anchor = f"#{link.anchor}" if link.anchor else ""
        if _language(path):
            target, anchor = _source_page(Path(target)).as_posix(), ""
        pieces += [text[last : link.start], target, anchor]
        last = link.end
    return "".join([*pieces, text[last:]]), files


def _language(path: Path) -> str | None:
    return CODE.get(path.suffix) or CODE.get(path.name)


def _source_page(path: Path) -> Path:
    return path.with_name(f"{path.name}.md")


def _as_page(root: Path, path: Path) -> str:
    """Return a page that shows a source file."""
    text = (root / path).read_text("utf-8")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return (
        "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
        f"# {path.as_posix()}\n\n{fence}{_language(path)}\n{text.rstrip()}\n{fence}\n"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def build(root: Path = ROOT) -> int:
    """Assemble and build the site, and return 0 if there was no warning."""
    problems = assemble(root, root / PAGES)
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    paths = [str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "NO_MKDOCS_2_WARNING": "1",
    }
    if subprocess.run(command, cwd=root, env=environment).returncode or problems:
        return 1
    missing = set(public_names()) - documented_in_inventory(root / SITE)
    for name in sorted(missing):
        print(f"docs: {name} is public, but not in the API reference", file=sys.stderr)
    print(f"docs: {root / SITE / 'index.html'}")
    return 1 if missing else 0


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m tools.docs.build", description=__doc__).parse_args()
    sys.exit(build())
