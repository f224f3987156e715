"""The report in a real browser: no console message, every control tried, on a wide and on a narrow screen, and printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from synthetic_run import document, write_run

from fedbo.analysis.result import Result
from fedbo.figures.page.page import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium brings one")

PLOT = "#r0-c0 figure[data-panel] svg.plot"
TIMELINE = "figure[data-timeline] svg.plot"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report([Result.open(write_run(folder / "run", document(), troubled=True))], folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        opened = Browser()
    except RuntimeError as error:
        pytest.skip(str(error))
    with opened:
        yield opened


@pytest.fixture
def wide(browser: Browser, page: Path) -> Iterator[Browser]:
    browser.open(page, 1280)
    yield browser
    assert browser.problems == []
    assert {address for address in browser.requests if not address.startswith("data:")} == {page.as_uri()}


def visible(browser: Browser, selector: str) -> bool:
    return bool(browser.value(f"getComputedStyle(document.querySelector('{selector}')).visibility === 'visible'"))


def tip(browser: Browser, figure: str) -> str:
    return str(browser.value(f'document.querySelector("{figure} .tip").innerText'))


def test_values_are_told_under_the_pointer(wide: Browser) -> None:
    assert not visible(wide, "figure[data-panel] .tip")
    x, y = wide.middle(PLOT)
    wide.mouse("mouseMoved", x, y)
    assert visible(wide, "figure[data-panel] .tip") and visible(wide, "figure[data-panel] .rule")
    told = tip(wide, "figure[data-panel]")
    assert told.startswith("evaluations 7") and "Alone" in told and "Together" in told and "±" in told
    wide.mouse("mouseMoved", x, 2)
    assert not visible(wide, "figure[data-panel] .tip")


def test_a_series_can_be_switched_off_and_on(wide: Browser) -> None:
    line = f"getComputedStyle(document.querySelector('{PLOT} .s1')).display"
    assert wide.value(line) == "inline"
    wide.click(".series label:nth-child(2)")
    assert wide.value(line) == "none"
    assert wide.value(f"getComputedStyle(document.querySelector('{PLOT} .s0')).display") == "inline"
    wide.mouse("mouseMoved", *wide.middle(PLOT))
    assert "Together" not in tip(wide, "figure[data-panel]")
    wide.click(".series label:nth-child(2)")
    assert wide.value(line) == "inline"


def test_the_arrow_keys_move_along_a_curve(wide: Browser) -> None:
    wide.value(f"document.querySelector('{PLOT}').focus()")
    for _ in range(3):
        wide.key("ArrowRight")
    assert tip(wide, "figure[data-panel]").startswith("evaluations 5")
    wide.key("ArrowLeft")
    assert tip(wide, "figure[data-panel]").startswith("evaluations 4")
    wide.key("Escape")
    assert not visible(wide, "figure[data-panel] .tip")


def test_every_panel_tells_its_values(wide: Browser) -> None:
    for number, word in enumerate(("evaluations", "time", "communication")):
        wide.mouse("mouseMoved", *wide.middle(f"figure[data-panel='r0-c0-p{number}'] svg.plot"))
        assert tip(wide, f"figure[data-panel='r0-c0-p{number}']").startswith(word)


def shown(browser: Browser) -> str:
    return str(browser.value("document.querySelector('figure[data-timeline] .shown').textContent"))


def bars(browser: Browser) -> str:
    return str(browser.value(f"document.querySelector(\"{TIMELINE} [data-layer='own query']\").getAttribute('d')"))


def test_the_script_draws_the_timeline_as_it_was_written(wide: Browser, page: Path) -> None:
    with Browser(script=False) as plain:
        plain.open(page, 1280)
        plain.call("Emulation.setScriptExecutionDisabled", value=False)
        assert bars(plain).count("M") == bars(wide).count("M") and bars(plain)[:40] == bars(wide)[:40]


def test_every_button_of_the_timeline_does_what_it_says(wide: Browser) -> None:
    whole = bars(wide)
    assert shown(wide) == "the whole run"
    places = []
    for name in ("in", "in", "right", "left", "out", "whole"):
        wide.click(f"figure[data-timeline] button[data-act={name}]")
        places.append(shown(wide))
    assert places[-1] == "the whole run" and places[1] == places[3] and len(set(places)) == 4 and places[0] == places[4]
    assert bars(wide) == whole


def test_a_stretch_that_is_dragged_over_is_zoomed_into(wide: Browser) -> None:
    x, y = wide.middle(TIMELINE)
    wide.mouse("mousePressed", x - 100, y, button="left", clickCount=1)
    wide.mouse("mouseMoved", x + 50, y, button="left")
    assert visible(wide, "figure[data-timeline] .brush")
    wide.mouse("mouseReleased", x + 50, y, button="left", clickCount=1)
    assert " to " in shown(wide) and not visible(wide, "figure[data-timeline] .brush")
    for count in (1, 2):
        for kind in ("mousePressed", "mouseReleased"):
            wide.mouse(kind, x, y, button="left", clickCount=count)
    assert shown(wide) == "the whole run"


def test_the_wheel_with_control_and_the_keys_zoom_too(wide: Browser) -> None:
    x, y = wide.middle(TIMELINE)
    wide.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    assert " to " in shown(wide)
    wide.value(f"document.querySelector('{TIMELINE}').focus()")
    wide.key("0", "0")
    assert shown(wide) == "the whole run"
    wide.key("+", "+")
    before = shown(wide)
    wide.key("ArrowRight")
    assert before != shown(wide)
    wide.key("-", "-")
    wide.key("Escape")
    assert shown(wide) == "the whole run"


def test_a_bar_tells_its_agent_and_its_value(wide: Browser) -> None:
    x, y = wide.middle(f"{TIMELINE} .tick-y")
    wide.mouse("mouseMoved", x + 30, y)
    told = tip(wide, "figure[data-timeline]")
    assert told.startswith("agent ") and "initial" in told and "error" in told


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_screen(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.problems == []


def test_the_page_is_whole_without_a_script(browser: Browser, page: Path) -> None:
    with Browser(script=False) as plain:
        plain.open(page, 1280)
        plain.call("Emulation.setScriptExecutionDisabled", value=False)
        assert plain.value("document.documentElement.className") == ""
        assert plain.value("[...document.querySelectorAll('svg.plot path')].every((one) => one.hasAttribute('d'))")
        assert plain.value("getComputedStyle(document.querySelector('.tools')).display") == "none"
        assert plain.problems == []


def test_it_prints_on_a_few_pages(wide: Browser) -> None:
    made = wide.printed()
    assert made.startswith(b"%PDF") and 1 <= made.count(b"/Type /Page\n") + made.count(b"/Type /Page/") <= 5
