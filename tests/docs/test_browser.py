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


def problems_of(browser: Any, page: Path, width: int) -> list[str]:
    """Open a page and return what is wrong with it."""
    problems: list[str] = []
    opened = browser.new_page(viewport={"width": width, "height": HEIGHT})
    with contextlib.closing(opened):
        opened.route("**/*", functools.partial(_stay_on_disk, problems=problems))
        opened.on("console", lambda m: m.type == "error" and problems.append(f"console: {m.text}"))
        opened.on("pageerror", lambda error: problems.append(f"script: {error}"))
        opened.on("requestfailed", lambda r: problems.append(f"failed: {r.url}"))
        opened.goto(page.as_uri(), wait_until="load")
        # Pictures that load when they come into view.
        opened.evaluate("document.querySelectorAll('img').forEach(i => i.loading = 'eager')")
        opened.wait_for_function("[...document.images].every(image => image.complete)")
        facts = opened.evaluate(FACTS)
    for name in ("brokenImages", "brokenVideos", "wide", "flat"):
        problems += [f"{name}: {value}" for value in facts[name]]
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
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_looks_right(browser, site, width):
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert pages
    found = {page.relative_to(site): problems_of(browser, page, width) for page in pages}
    wrong = "\n".join(f"{page}: {what}" for page, list_ in found.items() for what in list_)
    assert not wrong, wrong


@pytest.mark.slow
def test_search_works_from_the_disk(browser, site):
    opened = browser.new_page(viewport={"width": WIDTHS[0], "height": HEIGHT})
    with contextlib.closing(opened):
        opened.goto((site / "index.html").as_uri())
        opened.click("label[for=__search] >> nth=0", force=True)
        opened.fill("input.md-search__input", "conjugate gradient")
        opened.wait_for_selector(".md-search-result__item", timeout=20_000)


BAD = """<!doctype html><html><head><style>body {margin: 0}</style></head><body><article>
<h1>Bad</h1><img src="missing.png"><div style="width: 3000px">wide</div>
<p>\\(\\frac{1}{2}\\)</p><script src="https://example.org/x.js"></script>
<script>console.error("oops")</script></article></body></html>"""


@pytest.mark.slow
def test_problems_are_found(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(BAD)
    found = "\n".join(problems_of(browser, page, WIDTHS[0]))
    for what in ("brokenImages", "wider", "wide:", "formula", "leaves the disk", "oops"):
        assert what in found, found
