"""What all tests share: one Ray for the session, one thread for each process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray kills workers where the machine as a whole is short of memory, whoever uses it.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")
# The workers that Ray starts in advance have not the environment of the session, which none of its actors can use then.
os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
# In which Ray's own agents must start, or it ends itself: half a minute is too short where the machine is busy.
os.environ.setdefault("RAY_agent_register_timeout_ms", "300000")

import hypothesis
import pytest

# On a busy machine an example or a draw may take any time.
hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("busy")

# What a power failure would lose is seen by no test, and a busy disk would make the tests wait for it longer than for all else.
os.fsync = lambda file: None  # type: ignore[assignment]

# What is imported and collected stays until the end: to search it for garbage again and again takes a tenth of the collection.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from now on, among what the tests themselves make."""
    gc.freeze()
    gc.set_threshold(50_000)  # as the tests make little that refers to itself
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how many of the situations the quick random studies reached, and after a failure the seed of the order of sets."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')}")
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in getattr(report, "user_properties", ()):
            if name == "situations":
                terminalreporter.write_line(f"random studies reached {value} situations (tests.random_studies)")


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """A process that has imported everything and runs studies in forks of itself."""
    from killing import Forks

    made = Forks()
    yield made
    made.close()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figure and the report that a run ends with, for tests that open neither: a small run takes less time.

    Those that a test asks for itself, with a path or a kind, are drawn.
    """
    from fedbo.analysis.result import Result
    from fedbo.figures.page import page

    plot, report = Result.plot, page.write_report

    def plot_if_asked(result: Result, *choices: Any, **more: Any) -> Any:
        return plot(result, *choices, **more) if choices or more else result.directory / "overview.png"

    monkeypatch.setattr(Result, "plot", plot_if_asked)
    monkeypatch.setattr(page, "write_report", lambda results, path, *agents: report(results, path, *agents) if agents else path)


@pytest.fixture(scope="session")
def ray_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray on this machine, started at most once; whatever runs inside uses it."""
    import logging

    import ray

    variables = {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "FEDBO_TEST_MEETING": str(tmp_path_factory.mktemp("meeting")),
    }
    ray.init(
        "local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": variables},
    )
    yield
    ray.shutdown()
