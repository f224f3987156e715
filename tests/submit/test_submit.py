"""Studies in jobs that end before they do: told or killed without a word, they end with the bytes of one run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import slurm

import fedbo
from fedbo.cli import main
from fedbo.commands.arguments import FAILED, OK, WRONG_INPUT
from fedbo.submit.jobs import check_progress
from fedbo.submit.script import seconds_of

STUDY: dict[str, Any] = {
    "study": {"name": "short", "replicates": 2},
    "objective": {"name": "quadratic", "agents": 3},
    "agents": {"history": {"algorithm": "random", "observations": 4}},
    "budget": {"iterations": 6},
    "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
    "algorithm": [{"name": "random"}, {"name": "fts", "every": 1}],
    "recovery": {"events": 20},
}
SLOW = {**STUDY, "objective": {"name": "python_function", "function": "slow:slow", "agents": 3, "low": [0.0], "high": [1.0]}}
TABLES = ("observations.parquet", "events.parquet", "histories.parquet")


def tables(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in TABLES]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with a quick study, and one whose evaluations take a hundredth of a second."""
    (tmp_path / "slow.py").write_text(
        "import time\n\n\ndef slow(x, agent):\n    time.sleep(0.01)\n    return -(x[0] - 0.5) ** 2\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "slow", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    for name, study in (("short", STUDY), ("slow", SLOW)):
        (tmp_path / f"{name}.toml").write_text(fedbo.load_study(study, trust=True).to_toml(), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("10", 600), ("0:30", 30), ("1:00:00", 3600), ("1-0", 86400), ("1-2:30", 95400), ("2-00:00:01", 172801)],
)
def test_a_walltime_is_read_as_slurm_reads_it(given: str, seconds: int) -> None:
    assert seconds_of(given) == seconds


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--walltime", "soon"], "--walltime = 'soon': is no time; write minutes, M:S"),
        (["--walltime", "1"], "--notice = 120 s: must be shorter than --walltime, 60 s"),
        (["--to", "shell", "--nodes", "2"], "--to shell uses this machine alone"),
        (["--nodes", "2"], "--nodes = 2: a study with [hosting] kind = 'inline' uses one node"),
        (["--array", "--set", "study.replicates=1"], "--array: is for several replicates"),
        (["--template", "none.sh"], "--template = 'none.sh': TemplateNotFound"),
        (["--set", "budget.iteration=3"], "no such key"),
    ],
)
def test_what_no_job_could_do_is_wrong_input(
    arguments: list[str], words: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", "short.toml", *arguments]) == WRONG_INPUT
    said = capsys.readouterr().err
    assert words in said and len(said.splitlines()) == 1 and not (here / "runs").exists()


@pytest.mark.parametrize(
    "more", [(), ("--array",), ("--nodes", "3", "--set", "hosting.workers=2"), ("--to", "shell"), ("--to", "shell", "--array")]
)
def test_a_dry_run_prints_a_script_that_bash_can_read_and_writes_nothing(
    more: tuple[str, ...], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = ("--setup", "module load python", *(() if "shell" in more else ("--option=--partition=long",)))
    assert main(["submit", "short.toml", "--dry-run", *setup, *more]) == OK
    text = capsys.readouterr().out
    assert subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr == ""
    assert "module load python\n" in text and ("#SBATCH --partition=long" in text or "shell" in more)
    assert not (here / "runs").exists()


def test_a_site_replaces_blocks_of_the_template(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = '{% extends "slurm.sh.jinja" %}\n{% block options %}\n{{ super() }}#SBATCH --account=ours\n{% endblock %}\n'
    (here / "ours.jinja").write_text(own, encoding="utf-8")
    assert main(["submit", "short.toml", "--dry-run", "--template", "ours.jinja"]) == OK
    text = capsys.readouterr().out
    assert "#SBATCH --account=ours" in text and "#SBATCH --job-name=short" in text


def test_ray_has_the_options_with_which_the_script_starts_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ray.scripts.scripts import start

    assert main(["submit", "short.toml", "--dry-run", "--nodes", "2", "--set", "hosting.workers=2"]) == OK
    text = re.sub(r"\\\n\s*", "", capsys.readouterr().out)
    used = {
        word
        for line in text.splitlines()
        for part in re.findall(r"(?:\$ray| start) (--.*)", line)
        for word in re.findall(r"--[a-z-]+", part)
    }
    known = {name for parameter in start.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {"--head", "--address", "--block"} <= used <= known


def test_a_job_goes_on_with_what_a_stop_file_has_stopped(here: Path) -> None:
    fedbo.run("short.toml", out="alone")

    def touch(evaluation: Any) -> None:
        if not Path("parts/stop").exists():
            Path("parts/stop").touch()
            time.sleep(1.1)  # a run looks every second

    with pytest.raises(KeyboardInterrupt):
        fedbo.run("short.toml", out="parts", callbacks=[touch])
    assert (here / "parts" / "stop").exists()
    assert main(["job", "short.toml", "parts", "-q"]) == OK
    assert tables(here / "parts") == tables(here / "alone") and not (here / "parts" / "stop").exists()
    assert main(["job", "short.toml", "parts", "-q"]) == OK  # a job that comes after the end


def test_replicates_of_an_array_are_joined_to_the_bytes_of_one_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedbo.run("short.toml", out="alone")
    assert main(["job", "short.toml", "both", "-q", "--replicate", "1"]) == OK
    assert "replicate 1 has ended; others have not" in capsys.readouterr().out and not (here / "both").exists()
    assert main(["job", "short.toml", "both", "-q", "--replicate", "1"]) == OK  # once more, as after a kill at its end
    assert main(["job", "short.toml", "both", "-q", "--replicate", "0"]) == OK
    assert tables(here / "both") == tables(here / "alone")
    assert not [*(here / "both.jobs").glob("replicate-*")]
    assert main(["job", "short.toml", "both", "-q", "--replicate", "0"]) == OK


def test_jobs_that_leave_nothing_end_the_queue_until_the_study_is_submitted_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "short.jobs").mkdir()
    for _ in range(3):
        check_progress(Path("short"), None)  # all that a job does which is killed at once
    assert main(["job", "short.toml", "short"]) == FAILED
    assert "the last 3 jobs have left no evaluation and no snapshot; look in the logs" in capsys.readouterr().err
    (here / "short" / "parts" / "run").mkdir(parents=True)
    (here / "short" / "parts" / "run" / "log-000001.jsonl").write_text("one", encoding="utf-8")
    check_progress(Path("short"), None)


def test_another_study_in_the_directory_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedbo.run("short.toml", out="runs/short")
    assert main(["submit", "short.toml", "--to", "shell", "--set", "study.seed=3"]) == WRONG_INPUT
    assert "holds a run of another study" in capsys.readouterr().err
    assert main(["submit", "short.toml", "--to", "shell"]) == WRONG_INPUT
    assert "has ended; show it: fedbo show" in capsys.readouterr().err


def awaited(found: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until something is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("it has not come")


def log_of(folder: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*log*")))


@pytest.fixture
def shell(here: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., None]]:
    """Submit the slow study to this machine, with these options; what is left of it is stopped in the end."""
    started = []

    def submit(*options: str) -> None:
        assert main(["submit", "slow.toml", "--to", "shell", "--out", "parts", *options, "--format", "json"]) == OK
        started.append(int(json.loads(capsys.readouterr().out)["job"]))

    yield submit
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def at_work(here: Path) -> list[int]:
    """List the processes of the present job, once its study has begun."""
    awaited(lambda: (here / "parts" / "parts").is_dir())
    return awaited(lambda: [*map(int, _pgrep(f"-m fedbo job .*{here}/parts$"))])


def _pgrep(pattern: str) -> list[str]:
    return subprocess.run(["pgrep", "-f", "--", pattern], capture_output=True, text=True).stdout.split()


@pytest.mark.slow
def test_jobs_on_this_machine_that_are_told_and_killed_have_the_bytes_of_one_run(
    here: Path, shell: Callable[..., None]
) -> None:
    fedbo.run("slow.toml", out="alone")
    shell("--set", "recovery.seconds=0.05")
    for number, said in ((signal.SIGKILL, "code 137"), (signal.SIGTERM, "code 1(30|43)")):
        for pid in at_work(here):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        awaited(lambda: re.search(f"ends with {said}; the study goes on", log_of(here / "parts.jobs")))  # noqa: B023
    awaited(lambda: re.search("job [0-9]+: ended", log_of(here / "parts.jobs")))
    assert tables(here / "parts") == tables(here / "alone")


@pytest.mark.long
def test_many_short_jobs_have_the_bytes_of_one_run(here: Path, shell: Callable[..., None]) -> None:
    """A job is told after eight seconds, of which it needs some to begin; the study takes some jobs."""
    longer = ["--set", "budget.iterations=300"]
    assert main(["run", "slow.toml", *longer, "--out", "alone", "-q"]) == OK
    shell(*longer, "--walltime", "0:12", "--notice", "4")
    awaited(lambda: re.search("job [0-9]+: ended", log_of(here / "parts.jobs")), 600)
    assert log_of(here / "parts.jobs").count("code 130") >= 2
    assert tables(here / "parts") == tables(here / "alone")


@pytest.fixture
def stand_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the stand-in for SLURM, where a minute takes ten seconds, before all other commands."""
    folder = here / "slurm"
    for name, value in slurm.install(folder, minute=10.0).items():
        monkeypatch.setenv(name, value)
    yield folder
    for path in folder.glob("state/*.job"):
        slurm.scancel([path.stem])


@pytest.mark.slow
def test_a_queue_goes_on_after_kills_without_notice_and_stops_with_the_study(here: Path, stand_in: Path) -> None:
    fedbo.run("slow.toml", out="alone")
    assert main(["submit", "slow.toml", "--walltime", "10:00", "--notice", "20", "--out", "parts"]) == OK
    for number in (1, 2):
        awaited(lambda: (stand_in / "state" / f"{number + 1}.job").exists())  # noqa: B023
        awaited(lambda: (here / "parts" / "parts").is_dir())
        time.sleep(0.5)
        slurm.kill(stand_in, str(number))
    awaited(lambda: re.search("job [0-9]+: ended", log_of(here / "parts.jobs")))
    assert tables(here / "parts") == tables(here / "alone")
    awaited(lambda: len([*stand_in.glob("state/*.end")]) == len([*stand_in.glob("state/*.job")]))
    assert "cancelled" in [path.read_text() for path in stand_in.glob("state/*.end")]  # the job that would have come next


@pytest.mark.slow
def test_a_study_that_fails_stops_its_queue(here: Path, stand_in: Path) -> None:
    nowhere = ["--set", "hosting.workers=1", "--set", "hosting.address='127.0.0.1:1'"]
    assert main(["submit", "short.toml", *nowhere]) == OK
    awaited(lambda: "failed; mend it" in log_of(here / "runs" / "short.jobs"))
    awaited(lambda: (stand_in / "state" / "2.end").exists())
    assert (stand_in / "state" / "2.end").read_text() == "cancelled"


@pytest.mark.long
def test_an_array_and_nodes_with_ray_have_the_bytes_of_one_run(here: Path, stand_in: Path) -> None:
    fedbo.run("slow.toml", out="alone")
    assert main(["submit", "slow.toml", "--array", "--walltime", "10:00", "--out", "array"]) == OK
    awaited(lambda: (here / "array" / "report.html").exists())
    assert tables(here / "array") == tables(here / "alone")
    hosting = ["--set", "hosting.kind='packed'", "--set", "hosting.workers=2"]
    assert main(["submit", "slow.toml", "--nodes", "2", "--walltime", "20:00", "--out", "nodes", *hosting]) == OK
    awaited(lambda: re.search("job [0-9]+: ended", log_of(here / "nodes.jobs")), 300)
    assert tables(here / "nodes") == tables(here / "alone")
    assert "of 2 hosts" not in log_of(here / "nodes.jobs")
