"""Every page of the built site looks right in a real browser, wide and narrow.

Chromium comes from the system (`apt-get install chromium`). The site is built first.
"""

import contextlib
import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.docs.build import SITE, build

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (1280, 400)
HEIGHT = 900
LOCAL = ("file:", "data:", "blob:", "about:")
FACTS = """() => {
  const brokenImages = [...document.images].filter(
    image => !(image.complete && image.naturalWidth > 0)).map(image => image.src);
  const brokenVideos = [...document.querySelectorAll('video')].filter(
    video => video.error || video.networkState === HTMLMediaElement.NETWORK_NO_SOURCE
  ).map(video => video.currentSrc || video.outerHTML);
  const width = document.documentElement.clientWidth;
  const scrolls = element => {
    for (let e = element; e && e !== document.body; e = e.parentElement) {
      const style = getComputedStyle(e);
      if (style.overflowX !== 'visible' || style.position === 'fixed') return true;
    }
    return false;
  };
  const wide = [...document.querySelectorAll('article *')].filter(element => {
    const box = element.getBoundingClientRect();
    return box.width > 0 && box.right > width + 1 && !scrolls(element);
  }).map(element => element.outerHTML.slice(0, 200));
  const flat = [...document.querySelectorAll('math')].filter(math => {
    const box = math.getBoundingClientRect();
    return box.width < 2 || box.height < 5;
  }).map(math => math.getAttribute('alttext'));
  return {
    brokenImages, brokenVideos, wide, flat,
    overflow: document.documentElement.scrollWidth - width,
    rawMath: /\\$\\$|\\\\\\(|\\\\\\[|\\\\frac|\\\\theta/.test(
      [...document.querySelectorAll('article p, article li, article td')]
        .map(e => e.cloneNode(true)).map(e => {
          e.querySelectorAll('code, math, pre').forEach(inner => inner.remove());
          return e.textContent;
        }).join(' ')),
    title: document.querySelectorAll('article h1').length,
  };
}"""


@pytest.fixture(scope="module")
def site() -> Path:
    assert build(ROOT) == 0
    return ROOT / SITE


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as started:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
        with contextlib.closing(started.chromium.launch(**options)) as browser:
            yield browser


@contextlib.contextmanager
def open_tab(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    """Yield a tab that stays on the disk, and the list of what goes wrong in it."""
    problems: list[str] = []
    with contextlib.closing(browser.new_page()) as tab:
        tab.route("**/*", functools.partial(_stay_on_disk, problems=problems))
        tab.on("console", lambda m: m.type == "error" and problems.append(f"console: {m.text}"))
        tab.on("pageerror", lambda error: problems.append(f"script: {error}"))
        tab.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
        yield tab, problems


def problems_of(tab: Any, problems: list[str], page: Path) -> list[str]:
    """Open a page, look at it wide and narrow, and return what is wrong with it."""
    problems.clear()
    tab.set_viewport_size({"width": WIDTHS[0], "height": HEIGHT})
    tab.goto(page.as_uri(), wait_until="load")
    # Pictures that load when they come into view.
    tab.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
    tab.wait_for_function("[...document.images].every(image => image.complete)")
    found = []
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": HEIGHT})
        found += [f"{width} pixels: {what}" for what in _measured(tab.evaluate(FACTS))]
    return [*problems, *found]


def _measured(facts: dict[str, Any]) -> list[str]:
    problems = [
        f"{name}: {value}"
        for name in ("brokenImages", "brokenVideos", "wide", "flat")
        for value in facts[name]
    ]
    if facts["overflow"] > 0:
        problems.append(f"the page is {facts['overflow']} pixels wider than the window")
    if facts["rawMath"]:
        problems.append("a formula was not rendered")
    if facts["title"] != 1:
        problems.append(f"the page has {facts['title']} titles")
    return problems


def _stay_on_disk(route: Any, *, problems: list[str]) -> None:
    if route.request.url.startswith(LOCAL):
        route.continue_()
    else:
        problems.append(f"leaves the disk: {route.request.url}")
        route.abort()


@pytest.mark.slow
def test_every_page_looks_right(browser, site):
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert pages
    with open_tab(browser) as (tab, problems):
        found = [
            f"{page.relative_to(site)}: {what}"
            for page in pages
            for what in problems_of(tab, problems, page)
        ]
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_search_works_from_the_disk(browser, site):
    with open_tab(browser) as (tab, problems):
        tab.goto((site / "index.html").as_uri())
        tab.fill("input.md-search__input", "conjugate gradient", force=True)
        tab.wait_for_selector(".md-search-result__item", state="attached")
    assert problems == []


BAD = """<!doctype html><html><head><style>body {margin: 0}</style></head><body><article>
<h1>Bad</h1><img src="missing.png"><div style="width: 3000px">wide</div>
<p>\\(\\frac{1}{2}\\)</p><script src="https://example.org/x.js"></script>
<script>console.error("oops")</script></article></body></html>"""


@pytest.mark.slow
def test_problems_are_found(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(BAD)
    with open_tab(browser) as (tab, problems):
        found = "\n".join(problems_of(tab, problems, page))
    for what in ("brokenImages", "wider", "wide:", "formula", "leaves the disk", "oops"):
        assert what in found, found
