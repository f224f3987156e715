"""Studies on real hosts with a real network between them: whatever befalls these, nothing reported is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from befalling import ON_DATA, SHARED, VIRTUAL, Story, epoch_of, evaluated, living, start, tables, under_way, wait_for, wall
from laboratory import PATIENCE, Laboratory, done, hindrance, laboratory, netem_missing

import fedbo
from fedbo.objectives.datasets.data import places

WHY_NOT = hindrance()
HAS_LANDMINE = any(place.is_dir() for place in places("landmine"))
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with laboratory(tmp_path_factory.mktemp("hosts"), SHARED) as lab:
        lab.start_ray()
        yield lab


@pytest.fixture
def lab(made: Laboratory) -> Laboratory:
    """Three hosts that are up, whatever has befallen them before."""
    made.repair()
    return made


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tables of the study in virtual time, carried out by this process alone."""
    study = {**VIRTUAL, "hosting": {"kind": "inline"}}
    return tables(fedbo.run(study, out=tmp_path_factory.mktemp("alone") / "run").directory)


@pytest.fixture(scope="module")
def forgers(made: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> list[subprocess.Popen[str]]:
    """Those who try without the token: to join, to submit while they show none, and to run a study with another one.

    Ray lets them try for half a minute, so that they do it while others work. The first is on a host that is nobody's.
    """
    forged, folder = {"RAY_AUTH_TOKEN": "0123456789abcdef"}, tmp_path_factory.mktemp("forgers")
    code = f"import ray; ray.init('{made.address}', log_to_driver=False); print('connected')"
    (folder / "study.toml").write_text(fedbo.load_study(VIRTUAL, trust=True).to_toml(), encoding="utf-8")
    words = ["run", str(folder / "study.toml"), "--out", str(folder / "run"), "--address", made.address]
    return [
        made.ray(made.count, **forged),
        made.run(0, sys.executable, "-c", code, RAY_AUTH_MODE="disabled"),
        made.run(0, sys.executable, "-m", "fedbo.cli", *words, **forged),
    ]


@pytest.mark.long
def test_a_study_on_three_hosts_of_which_one_is_killed_has_the_bytes_of_one_process(
    lab: Laboratory, forgers: object, alone: dict[str, bytes], tmp_path: Path
) -> None:
    """Nothing is lost or doubled then, and hosts leave no trace in the results, dead or alive."""
    directory, driver, number, _ = under_way(lab, tmp_path, VIRTUAL, most=45)
    lab.kill(number)
    assert evaluated(lab) < 90, "it had ended before"
    done(driver)
    assert tables(directory) == alone


@pytest.mark.long
def test_a_study_on_three_hosts_has_the_bytes_of_one_process(lab: Laboratory, alone: dict[str, bytes], tmp_path: Path) -> None:
    done(start(lab, VIRTUAL, tmp_path / "run"))
    assert tables(tmp_path / "run") == alone


@pytest.mark.long
def test_whoever_has_a_wrong_token_can_neither_join_nor_submit(made: Laboratory, forgers: list[subprocess.Popen[str]]) -> None:
    told = [forger.communicate(timeout=PATIENCE)[0] for forger in forgers]
    assert [forger.returncode for forger in forgers] == [1, 1, 1], told
    assert all("InvalidAuthToken" in said and "connected\n" not in said for said in told[:2]), told
    assert f"the Ray cluster at '{made.address}' rejected this process's token; run `ray get-auth-token`" in told[2]


def befall(lab: Laboratory, folder: Path, iterations: int, cut: float | None) -> Story:
    """Run a study in real time; in its middle cut a host with agents off for so many seconds, or for good."""
    directory, driver, number, agents = under_way(lab, folder, wall(iterations), most=iterations)
    epoch, moment = epoch_of(directory), time.time()
    if cut is None:
        lab.kill(number)
    else:
        lab.cut(number)
        time.sleep(cut)
        lab.mend(number)
    done(driver)
    living.whole(directory, iterations=iterations)
    story = Story.of(directory, epoch, moment)
    assert set(story.gone) >= (set(agents) if cut is None or cut > 10 else set())
    return story


@pytest.mark.long
def test_a_worker_host_that_is_killed_costs_time_and_nothing_else(
    lab: Laboratory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = befall(lab, tmp_path, 60, None)
    with capsys.disabled():
        print(f"\na worker host was killed; {story}")


@pytest.mark.long
@pytest.mark.parametrize("seconds", [2.0, 20.0])
def test_a_worker_host_that_is_cut_off_and_comes_back_costs_time_and_nothing_else(
    seconds: float, lab: Laboratory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the longer time Ray has given the host up, and agents live elsewhere while those on it still go on."""
    story = befall(lab, tmp_path, 150, seconds)
    with capsys.disabled():
        print(f"\na worker host was cut off for {seconds:.0f} s; {story}")


@pytest.mark.long
def test_after_the_death_of_the_head_a_study_goes_on_upon_a_new_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with laboratory(tmp_path, SHARED, 2) as lab:
        lab.start_ray()
        driver = start(lab, wall(30), tmp_path / "run")
        wait_for(lab, 20, driver)
        moment = time.time()
        lab.kill(0)
        driver.communicate(timeout=PATIENCE)
        lab.renew()
        lab.start_ray()
        up = time.time() - moment
        driver = start(lab, wall(30), tmp_path / "run")
        wait_for(lab, 1, driver)
        again = time.time() - moment
        done(driver)
    living.whole(tmp_path / "run", iterations=30)
    with capsys.disabled():
        print(f"\nthe head was killed; new cluster after {up:.1f} s, first new evaluation after {again:.1f} s")


@pytest.mark.long
def test_a_driver_that_is_killed_with_its_snapshots_leaves_the_same_bytes_after_resume(
    lab: Laboratory, alone: dict[str, bytes], tmp_path: Path
) -> None:
    driver = start(lab, VIRTUAL, tmp_path / "run")
    until = time.monotonic() + PATIENCE
    while not [*tmp_path.glob("run/parts/*/latest.json")] and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    if (tmp_path / "run" / "parts").exists():
        done(start(lab, VIRTUAL, tmp_path / "run", "--workers", "2"))
    assert tables(tmp_path / "run") == alone


SLOW = {
    "a slow link": ["tbf", "rate", "8mbit", "burst", "32kbit", "latency", "400ms"],
    "latency and loss": ["netem", "delay", "50ms", "10ms", "loss", "1%"],
}


@pytest.mark.long
@pytest.mark.parametrize("wire", SLOW)
def test_what_the_wire_is_like_changes_no_byte(wire: str, lab: Laboratory, alone: dict[str, bytes], tmp_path: Path) -> None:
    if SLOW[wire][0] == "netem" and (why := netem_missing()):
        pytest.skip(why)
    for number in (1, 2):
        lab.shape(number, *SLOW[wire])
    try:
        done(start(lab, VIRTUAL, tmp_path / "run"))
    finally:
        for number in (1, 2):
            lab.shape(number, "pfifo")
    assert tables(tmp_path / "run") == alone


@pytest.mark.long
@pytest.mark.skipif(not HAS_LANDMINE, reason="landmine is not on this machine, and is not fetched for a test")
def test_each_host_looks_for_data_where_its_ray_was_started(tmp_path: Path) -> None:
    """The study's own process has none. A host that has none and cannot fetch any ends the run, and says what would do."""
    none = {"FEDBO_DATA": str(tmp_path / "none"), "XDG_CACHE_HOME": str(tmp_path / "none")}
    expected = tables(fedbo.run({**ON_DATA, "hosting": {"kind": "inline"}}, out=tmp_path / "alone").directory)
    with laboratory(tmp_path, SHARED, 2) as lab:
        lab.start_ray()
        done(start(lab, ON_DATA, tmp_path / "run", **none))
        assert tables(tmp_path / "run") == expected
        lab.renew()
        lab.environment.update(none)
        lab.start_ray()
        driver = start(lab, ON_DATA, tmp_path / "again")
        said, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 1 and "'landmine'" in said and "FEDBO_DATA" in said, said


@pytest.mark.long
def test_hosts_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; import sys, time; from laboratory import Laboratory; "
        f"lab = Laboratory(Path({str(tmp_path)!r}), {{}}, 1); print(lab.hosts[0].first, flush=True); time.sleep(60)"
    )
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    assert maker.stdout is not None
    first = int(maker.stdout.readline())
    assert Path(f"/proc/{first}").exists()
    maker.kill()
    maker.communicate()
    until = time.monotonic() + 10
    while Path(f"/proc/{first}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not Path(f"/proc/{first}").exists()
