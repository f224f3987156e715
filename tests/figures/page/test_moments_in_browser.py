"""Moving through the time of a run in a real browser: by pointer and by keyboard, on three screens, with no console message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import pytest
from browser import CHROMIUM, Browser
from synthetic_run import document, write_run

from fedbo.actors.storage.rows import RunKey
from fedbo.analysis.finished_run import fault_names
from fedbo.analysis.grouping import one_run
from fedbo.analysis.result import Result
from fedbo.commands.watch.command import PageServer
from fedbo.execution.runner import run_study
from fedbo.figures.page.moments import RunMoments, moments_of
from fedbo.figures.page.page import render_page, write_report
from fedbo.study.study import load_study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here; apt-get install chromium brings one")

SECTION = "section[data-moments]"
CLOCK = f"{SECTION} .clock"
STUDY: dict[str, Any] = {
    "study": {"name": "who waits", "seed": 5},
    "objective": {"name": "branin", "agents": 5},
    "agents": {"initial": 2},
    "budget": {"iterations": 9},
    "algorithm": [{"name": "fts"}],
    "timing": {
        "evaluation": {"model": "pareto", "mean": 1.0, "alpha": 1.5},
        "latency": {"model": "exponential", "mean": 0.2},
    },
    "exchange": {"mode": "barrier"},
    "network": {"attempts": 3},
    "fault": [
        {"kind": "loss", "label": "bad link", "probability": 0.06},
        {"kind": "crash", "agents": [2], "at": 5.0, "restart": 2.0},
    ],
}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_study(load_study(STUDY), tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def page(result: Result) -> Path:
    return write_report([result], result.directory / "moved.html", beliefs=[0, 1])


@pytest.fixture(scope="module")
def run(result: Result) -> RunMoments:
    return moments_of(one_run(result.events, *RunKey(0, "fts", 0)), result.traces, result.metric(), fault_names(result.study))


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
    assert {address.partition("#")[0] for address in browser.requests if not address.startswith("data:")} == {page.as_uri()}


def text(browser: Browser, selector: str) -> str:
    return str(browser.value(f"document.querySelector({json.dumps(f'{SECTION} {selector}')}).innerText"))


def now(browser: Browser) -> float:
    return float(browser.value(f"document.querySelector('{CLOCK}').value"))


def choose(browser: Browser, choice: str, value: str) -> None:
    """Choose an entry of a list, as a keyboard or a pointer would."""
    chosen = f"document.querySelector('{SECTION} [data-choice={choice}]')"
    browser.value(f"{chosen}.value = '{value}'")
    browser.value(f"{chosen}.dispatchEvent(new Event('change'))")


def until(browser: Browser, condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, for a minute at most; a page that is being loaded has none."""
    for _ in range(1200):
        with suppress(RuntimeError):
            if condition():
                return
        sleep(0.05)
    raise AssertionError("the page does not get there")


def at(browser: Browser, time: float) -> bool:
    return abs(now(browser) - time) < 1e-3


def go(browser: Browser, time: float, agent: int = 0) -> None:
    browser.value(f"location.hash = 'r0-c0-t0@{time}&agent={agent}'")
    until(browser, lambda: at(browser, time))


def table(browser: Browser) -> list[list[str]]:
    rows = f"[...document.querySelectorAll('{SECTION} tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    return list(browser.value(rows))


def test_every_agent_does_what_the_run_says(wide: Browser, run: RunMoments) -> None:
    for share in (0.0, 0.13, 0.4, 0.77, 1.0):
        time = share * run.end
        go(wide, time)
        for agent, (name, doing, *_) in zip(run.agents, table(wide), strict=True):
            last = [one for one in run.lives[agent] if one.time <= now(wide) + 1e-4][-1]
            assert name == str(agent) and doing.startswith(last.doing) and (last.step is None or doing.endswith(str(last.step)))


def test_an_open_round_waits_for_those_whose_message_has_not_come(wide: Browser, run: RunMoments) -> None:
    lost = [one.end for one in run.transmissions if one.up and one.fate == "lost" and one.end]
    times = [one.time for one in run.log if run.rounds[1].time < one.time < run.rounds[7].time][::7]
    crashed = [one.time for one in run.lives[2] if one.doing == "crashed"]  # after its message has come
    assert len(lost) > 1 and len(times) > 20 and crashed
    for time in (moment + 1e-3 for moment in lost + times + crashed):
        go(wide, time)
        begin = max((one.time for one in run.rounds if one.time <= time), default=0.0)
        there = {
            one.agent for one in run.transmissions if one.up and one.fate == "arrived" and begin < (one.end or 0.0) <= time
        }
        told = text(wide, ".rounds").partition("Not there yet: ")[2].partition(".\n")[0]
        assert {int(each) for each in re.findall(r"(\d+) \(", told)} == set(run.agents) - there, time


def test_the_page_answers_who_delayed_a_round_and_which_message_was_lost(wide: Browser, run: RunMoments) -> None:
    choose(wide, "kind", "round")
    for _ in range(8):
        wide.click(f"{SECTION} button[data-act=next]")
    seventh = run.rounds[7]
    assert seventh.number == 7 and now(wide) == pytest.approx(seventh.time, abs=1e-3)
    told = text(wide, ".rounds")
    assert f"Round 7 closed at {seventh.time:.5g} when the message of agent {seventh.agent} arrived, " in told
    assert f"In round 7, agent {seventh.agent} was " in told and "evaluating for " in told
    choose(wide, "kind", "lost")
    wide.value(f"document.querySelector('{CLOCK}').focus()")
    wide.key("Home")
    wide.click(f"{SECTION} button[data-act=next]")
    first = min((one for one in run.transmissions if one.fate == "lost"), key=lambda one: one.end or 0.0)
    what = f"message of step {first.number} of agent" if first.up else f"answer {first.number} to agent"
    assert f"{what} {first.agent}: lost (bad link) at {first.end:.5g}" in text(wide, ".losses")


def test_steps_stop_at_the_chosen_kind_of_event(wide: Browser, run: RunMoments) -> None:
    crashes = [one.time for one in run.log if one.kind in ("crashed", "restarted")]
    expected = {
        "trouble": crashes,
        "own": [one.time for one in run.log if one.agent == 0],
        "best": [one.time for one in run.bests[0]],
    }
    for kind, times in expected.items():
        wide.value(f"document.querySelector('{CLOCK}').focus()")
        wide.key("Home")
        choose(wide, "kind", kind)
        for time in sorted({time for time in times if time > 0})[:3]:
            wide.click(f"{SECTION} button[data-act=next]")
            assert at(wide, time), kind
        wide.click(f"{SECTION} button[data-act=back]")
        assert not at(wide, time)


def test_the_page_answers_when_an_agent_found_its_optimum(wide: Browser, run: RunMoments) -> None:
    choose(wide, "agent", "4")
    best = run.bests[4][-1]
    assert f"Its best of the whole run, {best.value:.4g}, is found in step {best.step}, at {best.time:.5g}." in text(
        wide, ".own"
    )
    wide.click(f"{SECTION} .own a")
    until(wide, lambda: at(wide, best.time))
    assert f"Its best value so far is {best.value:.4g}" in text(wide, ".own")


def test_the_keys_of_the_slider_step_leap_and_play(wide: Browser, run: RunMoments) -> None:
    times = sorted({round(one.time, 4) for one in run.log} | {round(one.begin, 4) for one in run.transmissions})
    wide.value(f"document.querySelector('{CLOCK}').focus()")
    wide.key("ArrowRight")
    wide.key("ArrowRight")
    assert now(wide) == pytest.approx(times[2], abs=1e-3)
    wide.key("ArrowLeft")
    assert now(wide) == pytest.approx(times[1], abs=1e-3)
    wide.key("PageUp")
    assert now(wide) == pytest.approx(times[1] + run.end / 20, abs=1e-3)
    wide.key("End")
    assert now(wide) == pytest.approx(run.end, abs=1e-3)
    assert "5 done" in text(wide, ".summary")
    wide.key("Home")
    assert now(wide) == 0 and text(wide, ".summary").startswith("At 0 of ")
    wide.key(" ", " ")
    assert text(wide, "button[data-act=play]") == "pause"
    until(wide, lambda: now(wide) > 0)
    wide.key(" ", " ")
    assert text(wide, "button[data-act=play]") == "play" and 0 < now(wide) < run.end


def test_everything_is_reached_by_the_tabulator_and_has_a_name(wide: Browser) -> None:
    wide.value(f"document.querySelector('{SECTION}').focus(); document.querySelector('{SECTION} button').focus()")
    reached = []
    for _ in range(9):
        reached.append(
            wide.value(
                "(({tagName, dataset, className}) => dataset.act ?? dataset.choice ?? className)(document.activeElement)"
            )
        )
        wide.key("Tab")
    assert reached[:8] == ["back", "play", "next", "kind", "agent", "speed", "link", "clock"] and "agents" in reached[8]
    tree = wide.call("Accessibility.getFullAXTree")["nodes"]
    slider = next(node for node in tree if node.get("role", {}).get("value") == "slider")
    assert slider["name"]["value"] == "virtual time"
    named = {
        node["name"]["value"].strip()
        for node in tree
        if node.get("role", {}).get("value") in ("button", "combobox", "region", "link")
    }
    assert {
        "play",
        "events",
        "agent",
        "play in",
        "link to this moment",
        "agents at this moment",
        "Move through time: fts, replicate 0",
    } <= named
    assert wide.value(f"document.querySelector('{CLOCK}').getAttribute('aria-valuetext')").startswith("0 of ")


def test_a_link_opens_the_page_at_its_moment(browser: Browser, page: Path, run: RunMoments) -> None:
    browser.open(page, 1280)
    go(browser, 0.5 * run.end, 3)
    address = browser.value(f"document.querySelector('{SECTION} .link').href")
    browser.call("Page.navigate", url="about:blank")
    browser.call("Page.navigate", url=address)
    until(browser, lambda: at(browser, 0.5 * run.end))
    assert text(browser, ".who") == "Agent 3"
    assert abs(browser.value(f"document.querySelector('{SECTION}').getBoundingClientRect().top")) < 2
    for wrong in ("r0-c0-t0@x", "r0-c0-t0@1e999", "other@5", "%", "r0-c0-t0@5&agent=99"):
        browser.value(f"location.hash = '{wrong}'")
    until(browser, lambda: at(browser, 5.0))
    assert browser.problems == []
    browser.requests.clear()


def test_a_click_into_the_timeline_moves_there_and_zooming_keeps_the_moment(wide: Browser, run: RunMoments) -> None:
    svg = "figure[data-timeline] svg.plot"
    wide.click(svg)
    moved = now(wide)
    assert 0.2 * run.end < moved < 0.8 * run.end
    place = f"document.querySelector('{svg} .moment').getAttribute('d')"
    before = wide.value(place)
    wide.click("figure[data-timeline] button[data-act=in]")
    assert wide.value(place) != before and wide.value(place).startswith("M") and now(wide) == moved
    go(wide, run.end)
    assert wide.value(place) == ""


def test_beliefs_are_drawn_for_the_chosen_agent(wide: Browser, run: RunMoments) -> None:
    assert "no surrogate before its first decision" in text(wide, ".belief")
    choose(wide, "kind", "belief")
    choose(wide, "agent", "1")
    wide.click(f"{SECTION} button[data-act=next]")
    assert "Its own surrogate before step 1, at" in text(wide, ".belief") and "posterior draw" in text(wide, ".belief")
    drawn = wide.value(f"[...document.querySelectorAll('{SECTION} canvas')].map((one) => one.toDataURL())")
    assert len(set(drawn)) == 3 and min(map(len, drawn)) > 1000


@pytest.mark.parametrize("width", [1280, 760, 400])
def test_three_screens_hold_the_page(browser: Browser, page: Path, run: RunMoments, width: int) -> None:
    browser.open(page, width)
    go(browser, 0.6 * run.end, 2)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(f"document.querySelector('{CLOCK}').getBoundingClientRect().width") > 0.7 * width
    assert browser.problems == []


def test_a_hundred_agents_move_smoothly(browser: Browser, tmp_path: Path) -> None:
    made = Result.open(write_run(tmp_path / "run", document(100, 12, 1), troubled=True))
    browser.open(write_report([made], tmp_path / "report.html"), 1280)
    assert len(table(browser)) == 100
    step = f"document.querySelector('{SECTION} button[data-act=next]').click()"
    browser.value(f"for (let count = 0; count < 100; count += 1) {step}")
    assert now(browser) > 0 and browser.problems == []


def test_a_page_of_a_run_in_progress_shows_its_end_and_is_asked_for_again(browser: Browser, result: Result) -> None:
    running = Result(result.directory, result.study, {**result.manifest, "status": "running"})
    pages = [0]

    def page() -> str:
        pages[0] += 1
        return render_page([running], refresh=0.2)

    with PageServer(page) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        browser.requests.clear()
        browser.call("Page.navigate", url=server.address)
        until(browser, lambda: pages[0] > 2)
        browser.call("Page.navigate", url="about:blank")
        server.shutdown()
        thread.join()
    assert browser.problems == []
    assert {each for each in browser.requests if not each.startswith(("data:", "about:"))} == {server.address}
