"""The report in a real browser: no request, no error, curves and videos respond, accessible."""

from pathlib import Path

import numpy as np
import pytest

from tests.analysis.test_report import make_run
from tests.docs.test_browser import browser, open_tab  # noqa: F401
from trellis.analysis.report import write_report

AXE = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text()
WIDTHS = (1280, 400)
SERIOUS = ("serious", "critical")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of two groups of three seeds, with a video."""
    import imageio.v2 as imageio

    folder = tmp_path_factory.mktemp("report")
    runs = [
        make_run(folder / f"{max_kl}-{seed}", seed=seed, max_kl=max_kl, rows=200)
        for max_kl in (0.01, 0.02)
        for seed in range(3)
    ]
    frames = np.random.default_rng(0).integers(0, 255, (40, 64, 64, 3)).astype(np.uint8)
    with imageio.get_writer(runs[0] / "video.mp4", fps=20, codec="libx264") as writer:
        for frame in frames:
            writer.append_data(frame)
    return write_report(runs, folder / "report.html").path


@pytest.fixture(params=WIDTHS)
def tab(request, browser, page):  # noqa: F811
    with open_tab(browser) as (tab, problems):
        tab.set_viewport_size({"width": request.param, "height": 900})
        tab.goto(page.as_uri())
        tab.wait_for_selector(".chart canvas")
        yield tab
        assert problems == []


def center(tab, selector):
    place = tab.locator(selector).first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    return box["x"], box["y"] + box["height"] / 2, box["width"]


def wait_until(tab, expression):
    """Wait for an expression; the page's policy forbids Playwright's own way, which evaluates."""
    for _ in range(200):
        if tab.evaluate(f"Boolean({expression})"):
            return
        tab.wait_for_timeout(50)
    raise AssertionError(f"{expression} did not become true")


def zoom_of(tab):
    return tab.evaluate("document.querySelector('.chart').dataset.zoom || ''")


def test_nothing_is_wider_than_the_window(tab):
    assert tab.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    empty = "[...document.querySelectorAll('.chart')].filter(e => !e.querySelector('canvas'))"
    assert tab.evaluate(f"{empty}.length") == 0
    assert tab.locator(".chart").count() == 9


def test_hover_shows_values(tab):
    x, y, width = center(tab, ".chart")
    tab.mouse.move(x + 0.7 * width, y)
    wait_until(tab, "document.querySelector('.readout').textContent.includes('steps')")
    text = tab.locator(".readout").first.inner_text()
    assert "max_kl=0.01 (3 seeds)" in text
    assert " to " in text


def test_drag_zooms_all_charts_and_double_click_resets(tab):
    x, y, width = center(tab, ".chart")
    before = tab.evaluate("document.querySelectorAll('.chart')[3].textContent")
    tab.mouse.move(x + 0.5 * width, y)
    tab.mouse.down()
    tab.mouse.move(x + 0.8 * width, y, steps=5)
    tab.mouse.up()
    wait_until(tab, "document.querySelector('.chart').dataset.zoom")
    low, high = map(float, zoom_of(tab).split())
    assert 100 < low < high < 20_000
    tab.mouse.dblclick(x + 0.6 * width, y)
    wait_until(tab, f"document.querySelector('.chart').dataset.zoom !== '{low} {high}'")
    assert tab.evaluate("document.querySelectorAll('.chart')[3].textContent") == before


def test_the_keyboard_reads_values_and_zooms(tab):
    chart = tab.locator(".chart").first
    chart.focus()
    tab.keyboard.press("ArrowRight")
    readout = tab.locator(".readout").first
    first = readout.inner_text()
    assert "steps" in first
    assert readout.get_attribute("aria-live") == "polite"
    tab.keyboard.press("ArrowRight")
    assert readout.inner_text() != first
    tab.keyboard.press("+")
    low, high = map(float, zoom_of(tab).split())
    assert high - low < 19_900 * 0.6
    tab.keyboard.press("0")
    low, high = map(float, zoom_of(tab).split())
    assert high - low == pytest.approx(19_900)


def test_choices_change_the_curves(tab):
    def pixels():
        return tab.evaluate("document.querySelector('.chart canvas').toDataURL()")

    seen = {pixels()}
    for identifier, value in (("axis", "seconds"), ("lines", "runs"), ("smooth", "41")):
        tab.select_option(f"#{identifier}", value)
        tab.wait_for_timeout(100)
        seen.add(pixels())
    tab.locator(".tools button").first.click()  # Logarithmic axis.
    tab.wait_for_timeout(100)
    seen.add(pixels())
    tab.locator(".legend button").first.click()
    tab.wait_for_timeout(100)
    seen.add(pixels())
    assert tab.locator(".legend button").first.get_attribute("aria-pressed") == "false"
    tab.locator("#theme").click()
    tab.wait_for_timeout(100)
    seen.add(pixels())
    assert len(seen) == 7


def test_the_video_plays(tab):
    tab.evaluate("document.querySelector('video').play()")
    wait_until(tab, "document.querySelector('video').currentTime > 0.3")
    assert tab.evaluate("document.querySelector('video').videoWidth") == 64


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(tab, theme):
    tab.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    tab.wait_for_timeout(200)
    tab.evaluate(AXE)
    found = [v for v in tab.evaluate("axe.run()")["violations"] if v["impact"] in SERIOUS]
    assert found == [], "\n".join(f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found)
