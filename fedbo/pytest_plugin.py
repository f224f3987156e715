"""The contracts of plug-ins as tests: `pytest --fedbo-contract DISTRIBUTION` tests every plug-in that it declares.

pytest loads this module wherever fedbo is installed, so it imports nothing heavy before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fedbo.settings.plugins import GROUPS, Plugin, installed


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    words = "test all plug-ins of this installed distribution or package against fedbo's contracts"
    parser.getgroup("fedbo").addoption("--fedbo-contract", action="append", default=[], metavar="DISTRIBUTION", help=words)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add one test for each plug-in of the named distributions."""
    for name in config.getoption("--fedbo-contract"):
        found = [plugin for group in GROUPS for plugin in installed(group) if _is_of(plugin, name)]
        if not found:
            known = ", ".join(sorted({plugin.distribution for group in GROUPS for plugin in installed(group)}))
            raise pytest.UsageError(f"--fedbo-contract {name}: declares no plug-ins; those that do: {known or 'none'}")
        items.extend(_Contract.of(session, plugin) for plugin in found)


def _is_of(plugin: Plugin, name: str) -> bool:
    """Return whether a plug-in belongs to a distribution or a package of this name."""
    return _normal(plugin.distribution) == _normal(name) or f"{plugin.place}.".replace(":", ".").startswith(f"{name}.")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _Contract(pytest.Item):
    """A test of one plug-in."""

    plugin: Plugin

    @classmethod
    def of(cls, session: pytest.Session, plugin: Plugin) -> _Contract:
        """Return the test of a plug-in."""
        made: _Contract = cls.from_parent(session, name=f"{plugin.group}.{plugin.name}")
        made.plugin = plugin
        return made

    def runtest(self) -> None:
        """Check the plug-in's contract."""
        _CHECKS[self.plugin.group](self.plugin.name)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message of a broken contract; the traceback of any other error."""
        if type(excinfo.value).__name__ in ("ContractBroken", "PluginError"):
            return str(excinfo.value)
        excinfo.traceback = excinfo.traceback.cut(path=__file__)
        return excinfo.getrepr(style="short")

    def reportinfo(self) -> tuple[str, None, str]:
        """Return the place and the title of the test."""
        return self.plugin.place, None, f"fedbo contract: {self.name} of {self.plugin.origin}"


def _check_algorithm(name: str) -> None:
    from fedbo.algorithms.catalog import entry
    from fedbo.testing.algorithm_contract import check_algorithm

    for preset in (None, *entry(name).presets):
        check_algorithm(entry(name).make(preset))


def _check_objective(name: str) -> None:
    from fedbo.objectives.catalog import catalogue
    from fedbo.testing.objective_contract import check_federation

    check_federation(catalogue()[name]())


def _check_timing(name: str) -> None:
    from fedbo.study.environment.tables import timings
    from fedbo.testing.environment_contract import check_timing

    check_timing(timings[name]())


def _check_availability(name: str) -> None:
    from fedbo.study.environment.tables import availabilities
    from fedbo.testing.environment_contract import check_availability

    check_availability(availabilities[name]())


def _check_exchange(name: str) -> None:
    from fedbo.testing.environment_contract import check_exchange

    check_exchange(name)


def _check_callback(name: str) -> None:
    from fedbo.algorithms.streams import COORDINATOR
    from fedbo.callbacks import callback
    from fedbo.execution.notices import CallbackCalls, Evaluation, LoggedEvent

    calls = CallbackCalls([callback(name)], strict=True)
    calls.evaluation(
        Evaluation(
            0, 0, {"x": 0.5}, value=1.0, error=None, started=0.0, finished=1.0, metrics={"loss": 0.1}, reports=((1.0, 0.5),)
        )
    )
    calls.evaluation(Evaluation(0, 1, {"x": 0.5}, value=None, error="ValueError: no", started=1.0, finished=2.0))
    calls.event(LoggedEvent(0, "random", 0, sequence=0, time=2.0, kind="arrived", agent=0, step=1, bytes=8, staleness=0))
    calls.event(LoggedEvent(0, "random", 0, sequence=1, time=2.0, kind="round", agent=COORDINATOR, round=0, bytes=8))
    calls.end()


_CHECKS: dict[str, Callable[[str], None]] = {
    "algorithms": _check_algorithm,
    "objectives": _check_objective,
    "timings": _check_timing,
    "availabilities": _check_availability,
    "exchanges": _check_exchange,
    "callbacks": _check_callback,
}
