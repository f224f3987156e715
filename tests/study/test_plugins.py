"""Plug-ins of other distributions, and classes named by their places: found, checked, and part of a study's digest."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedbo
from fedbo.algorithms import catalog as algorithms
from fedbo.algorithms.random import Random
from fedbo.callbacks import CALLBACKS, callback
from fedbo.cli import main
from fedbo.coordinator.selection import choosers
from fedbo.execution.hosts import host_problems
from fedbo.objectives import catalog as objectives
from fedbo.settings import plugins, rooms
from fedbo.study.environment.tables import availabilities, exchanges, timings
from fedbo.study.files import distributions
from fedbo.study.listing import broken, groups
from fedbo.study.study import StudyError, load_study
from fedbo.testing.algorithm_contract import check_algorithm
from fedbo.testing.contract import ContractBroken
from fedbo.testing.plugin_contract import check_plugin, plugins_of

MODULE = '''
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from fedbo.algorithms.random import Random
from fedbo.algorithms.catalog import Entry
from fedbo.coordinator.environment.availability import Bernoulli
from fedbo.coordinator.environment.timing import Constant
from fedbo.coordinator.kernel.exchange import Buffered
from fedbo.objectives.functions import Branin

seen = []

@dataclass(frozen=True, slots=True)
class Coin(Random):
    """Tossing a coin."""
    bias: float = 0.5

@dataclass(frozen=True)
class Hollow(Branin):
    """A hollow."""

@dataclass(frozen=True)
class Slow(Constant):
    """Two of anything."""
    model: ClassVar[str] = "slow"
    mean: float = 2.0

@dataclass(frozen=True)
class Rare(Bernoulli):
    """Seldom there."""
    model: ClassVar[str] = "rare"

@dataclass(frozen=True)
class Pairs(Buffered):
    """Two at a time."""
    mode: ClassVar[str] = "pairs"
    k: int = 2

@dataclass(frozen=True)
class Last:
    """The last ones."""
    step: int = 1

    def choose(self, known, count, rng):
        return np.arange(len(known.agents))[:: -self.step][:count]

@dataclass(frozen=True)
class Half:
    """Lacks nearly all of the protocol."""

entry = Entry(Coin, presets={"fair": {"bias": 0.5}})
number = 5
'''
STUDY: dict[str, Any] = {
    "study": {"name": "plugged"},
    "objective": {"name": "hollow", "agents": 3},
    "budget": {"iterations": 2},
    "algorithm": [{"name": "coin", "bias": 0.25}],
    "timing": {"evaluation": {"model": "slow"}},
    "availability": {"model": "rare"},
    "exchange": {"mode": "pairs"},
}
ALL = {
    "algorithms": {"coin": "toss_{n}:Coin"},
    "objectives": {"hollow": "toss_{n}:Hollow"},
    "timings": {"slow": "toss_{n}:Slow"},
    "availabilities": {"rare": "toss_{n}:Rare"},
    "exchanges": {"pairs": "toss_{n}:Pairs"},
    "selections": {"last": "toss_{n}:Last"},
    "callbacks": {"noted": "toss_{n}:seen.append"},
}
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Let distributions be installed for one test: `install(name, version, {group: {name: place}})`."""
    catalogues = (algorithms.catalogue(), objectives.catalogue(), timings, availabilities, exchanges, choosers, CALLBACKS)

    def forget() -> None:
        for found in (plugins.declared, rooms.rooms, rooms.plugin_rooms):
            found.cache_clear()
        for catalogue in catalogues:
            catalogue._found.clear()

    def made(name: str, version: str, declared: dict[str, dict[str, str]], module: str = MODULE) -> Path:
        folder = tmp_path / f"{name}-{version}"
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (folder / f"toss_{name}.py").write_text(module, encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        lines = [
            f"[fedbo.{group}]\n" + "".join(f"{key} = {place.format(n=name)}\n" for key, place in names.items())
            for group, names in declared.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        forget()
        return folder

    forget()
    yield made
    monkeypatch.undo()
    forget()
    for module in [name for name in sys.modules if name.startswith("toss_")]:
        del sys.modules[module]


def test_plugins_of_every_group_are_listed_and_run(install: Install, tmp_path: Path) -> None:
    install("coins", "1.2", ALL)
    listed = {group: {item.name: item for item in items} for group, items in groups().items()}
    assert listed["algorithms"]["coin"].settings["bias"] == "0.5"
    assert listed["objectives"]["hollow"].summary == "A hollow."
    assert all(name in listed[group] for group, name in (("timing", "slow"), ("availability", "rare"), ("exchange", "pairs")))
    assert listed["selection"]["last"].summary == "The last ones."
    assert not broken()
    result = fedbo.run(STUDY, out=tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    used = {"algorithms.coin", "objectives.hollow", "timings.slow", "availabilities.rare", "exchanges.pairs"}
    assert manifest["plugins"] == dict.fromkeys(sorted(used), "coins 1.2")
    assert set(result.observations.column("algorithm").to_pylist()) == {"coin"}
    callback("noted")("told")  # type: ignore[arg-type]
    assert sys.modules["toss_coins"].seen == ["told"]


def test_an_entry_has_its_presets(install: Install) -> None:
    install("coins", "1.2", {"algorithms": {"coin": "toss_{n}:entry"}})
    study = load_study(
        {
            **STUDY,
            "objective": {"name": "branin"},
            "timing": {},
            "availability": {},
            "exchange": {},
            "algorithm": [{"name": "coin", "preset": "fair"}],
        }
    )
    assert study.labels == ("coin (fair)",)


def test_a_plugin_of_another_version_makes_another_study(install: Install) -> None:
    install("coins", "1.2", ALL)
    first = load_study(STUDY)
    plain = load_study(
        {
            **STUDY,
            **{
                key: {"name": "branin"} if key == "objective" else {}
                for key in ("objective", "timing", "availability", "exchange")
            },
            "algorithm": [{"name": "random"}],
        }
    )
    digests = first.digest(), plain.digest()
    install("newer", "1.3", {})
    assert (first.digest(), plain.digest()) == digests
    plugins.declared.cache_clear()
    for info in Path(sys.path[1]).glob("coins-*.dist-info"):
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coins\nVersion: 1.3\n")
    assert distributions(first)["algorithms.coin"] == "coins 1.3"
    assert first.digest() != digests[0] and plain.digest() == digests[1]


def test_sweeps_name_plugins_too(install: Install) -> None:
    install("coins", "1.2", ALL)
    swept = {**STUDY, "exchange": {"mode": "immediate"}, "sweep": {"exchange.mode": ["immediate", "pairs"]}}
    assert "exchanges.pairs" in distributions(load_study(swept))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("nowhere_at_all:Coin", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("toss_{n}:Missing", "'toss_coins' has no 'Missing'"),
        ("toss_{n}:number", "it is 5, and a frozen dataclass of settings would do"),
        ("toss_{n}:Half", "Half has no 'agent_init', which the protocol Algorithm asks for"),
    ],
)
def test_a_broken_plugin_is_one_line(install: Install, place: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    install("coins", "1.2", {"algorithms": {"coin": place}})
    words = f"the plug-in 'coin' of coins 1.2 cannot be used: {why}; mend or uninstall it"
    assert broken() == [words]
    from fedbo.cli import main

    assert main(["list", "algorithms"]) == 0
    printed = capsys.readouterr()
    assert "thompson" in printed.out.lower() and printed.err == f"{words}\n"
    with pytest.raises(StudyError) as error:
        load_study(
            {
                "study": {"name": "s"},
                "objective": {"name": "branin"},
                "budget": {"iterations": 1},
                "algorithm": [{"name": "coin"}],
            }
        )
    assert str(error.value) == f"study: [[algorithm]] 1 name = 'coin': {words}"


def test_a_module_that_fails_when_it_is_imported_is_one_line(install: Install) -> None:
    install("coins", "1.2", {"algorithms": {"coin": "toss_{n}:Coin"}}, "raise SystemError('two\\nlines')")
    assert broken() == ["the plug-in 'coin' of coins 1.2 cannot be used: SystemError: two lines; mend or uninstall it"]


def test_names_that_are_taken_are_told(install: Install) -> None:
    install("coins", "1.2", {"algorithms": {"coin": "toss_{n}:Coin", "fts": "toss_{n}:Coin"}})
    install("other", "0.1", {"algorithms": {"coin": "toss_{n}:Coin"}})
    twice = "several plug-ins have the name 'coin' (coins 1.2, other 0.1); uninstall all of them but one"
    own = "the plug-in 'fts' of coins 1.2 has a name of fedbo's own, and is not used; let its author choose another one"
    assert broken() == [twice, twice, own]
    assert algorithms.entry("fts").settings.__name__ != "Coin"


def test_a_study_names_a_class_in_a_file_beside_it(install: Install, tmp_path: Path) -> None:
    install("coins", "1.2", {})
    (tmp_path / "toss_mine.py").write_text(MODULE, encoding="utf-8")
    written = tmp_path / "study.toml"
    written.write_text(
        '[study]\nname = "mine"\n[objective]\nname = "branin"\n[budget]\niterations = 2\n'
        '[[algorithm]]\nname = "toss_mine.py:Coin"\nbias = 0.1\n'
    )
    with pytest.raises(StudyError, match=r"names Python code \(algorithm.name = 'toss_mine.py:Coin'\), which"):
        load_study(written)
    study = load_study(written, trust=True)
    assert study.labels == ("Coin",) and study.algorithm[0].name == f"{tmp_path / 'toss_mine.py'}:Coin"
    before = study.digest()
    result = fedbo.run(study, out=tmp_path / "run")
    assert result.observations.num_rows and load_study(tmp_path / "run" / "study.toml").digest() == before
    (tmp_path / "toss_mine.py").write_text(MODULE + "\n", encoding="utf-8")
    assert study.digest() == before and load_study(written, trust=True).digest() != before
    with pytest.raises(StudyError, match='there is no file .*gone.py.*; write "package.module:Class" or "file.py:Class"'):
        load_study(written, ['algorithm.Coin.name="gone.py:Coin"'], trust=True)


def test_a_study_names_a_class_of_a_module(install: Install) -> None:
    install("coins", "1.2", {})
    table = {"study": {"name": "s"}, "objective": {"name": "branin"}, "budget": {"iterations": 1}}
    assert load_study({**table, "algorithm": [{"name": "toss_coins:Coin"}]}, trust=True).algorithm[0].settings["bias"] == 0.5
    with pytest.raises(StudyError, match="'toss_coins' has no 'Gone'"):
        load_study({**table, "algorithm": [{"name": "toss_coins:Gone"}]}, trust=True)


def test_a_run_is_not_resumed_with_other_plugins(install: Install, tmp_path: Path) -> None:
    install("coins", "1.2", ALL)
    fedbo.run(STUDY, out=tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    from fedbo.analysis.manifest import read_manifest, write_manifest

    found = read_manifest(tmp_path / "run")
    write_manifest(tmp_path / "run", {**found, "status": "interrupted", "plugins": {"algorithms.coin": "coins 1.1"}})
    with pytest.raises(
        ValueError, match="other plug-ins .*algorithms.coin: coins 1.1 -> coins 1.2.*; install those, or run the study"
    ):
        fedbo.resume(manifest.parent)


def test_a_run_is_shown_where_its_plugins_are_not_installed(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = install("coins", "1.2", ALL)
    fedbo.run(STUDY, out=tmp_path / "run")
    folder.rename(tmp_path / "gone")
    del sys.modules["toss_coins"]
    install("others", "1.0", {})
    assert "coin" not in algorithms.catalogue() and main(["show", str(tmp_path / "run")]) == 0
    assert "coin" in capsys.readouterr().out


def test_hosts_without_a_plugin_are_named() -> None:
    ours = {"python": "3.11", "algorithms.coin": "coins 1.2", "package": "abc"}
    found = {"python": "3.11", "package": "abc", "seen": True, "writes": True, "more": []}
    words = "has no algorithms.coin, but this process has algorithms.coin coins 1.2; install the same versions on all hosts"
    assert [*host_problems(found, ours, Path("/shared"))] == [words]
    assert not [*host_problems({**found, "algorithms.coin": "coins 1.2"}, ours, Path("/shared"))]


def test_an_unknown_callback_is_refused() -> None:
    with pytest.raises(ValueError, match="no callback 'mlflw'; did you mean 'mlflow'"):
        callback("mlflw")


def test_contracts_of_a_distribution_are_checked_one_by_one(install: Install) -> None:
    broken_too = MODULE.replace("mean: float = 2.0", "mean: float = 2.0\n    def draw(self, rng, size): return [1.0] * size")
    install("coins", "1.2", ALL)
    install("bad", "0.1", {"timings": {"crooked": "toss_{n}:Slow"}}, broken_too)
    (crooked,) = plugins_of("toss_bad")
    with pytest.raises(ContractBroken, match="durations must be an array of the size that was asked for"):
        check_plugin(crooked)
    for plugin in plugins_of("coins"):
        check_plugin(plugin)
    with pytest.raises(ValueError, match="nobody: declares no plug-ins; those that do: bad, coins"):
        plugins_of("nobody")


ROOM = """
from fedbo.settings.rooms import Room
from fedbo.testing.contract import ContractBroken

def column():
    return "{group}", "{heading}", {{"random": "fair"}}

def check(algorithm):
    if type(algorithm).__name__ == "{refused}":
        raise ContractBroken("{heading} says no")

ROOM = Room(
    sentence="Judge methods.", functions={{"list_column": __name__ + ":column", "check_algorithm": __name__ + ":check"}}
)
"""


def test_rooms_of_plugins_add_columns_to_lists_and_checks_to_the_contract_of_algorithms(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any(item.more for items in groups().values() for item in items)
    check_algorithm(Random())
    for name, heading, refused in (("one", "taste", "GPEI"), ("two", "smell", "Random")):
        text = ROOM.format(group="algorithms", heading=heading, refused=refused)
        install(name, "1.0", {"rooms": {name: "toss_{n}:ROOM"}}, text)
    for plugin in (*plugins_of("one"), *plugins_of("two")):
        check_plugin(plugin)
    listed = {item.name: item.more for item in groups()["algorithms"]}
    assert listed["random"] == {"taste": "fair", "smell": "fair"} and listed["fts"] == {"taste": "", "smell": ""}
    assert main(["list", "algorithms", "--format", "json"]) == 0
    row = next(one for one in json.loads(capsys.readouterr().out)["algorithms"] if one["name"] == "random")
    assert (row["reveals"], row["taste"]) == ("nothing", "fair") and "more" not in row
    assert main(["list", "algorithms"]) == 0
    assert {"taste", "smell", "fair"} <= {*capsys.readouterr().out.split()}
    with pytest.raises(ContractBroken, match="smell says no"):
        check_algorithm(Random())


def test_a_column_of_a_group_that_is_not_listed_breaks_the_contract_of_rooms(install: Install) -> None:
    install("odd", "1.0", {"rooms": {"odd": "toss_{n}:ROOM"}}, ROOM.format(group="methods", heading="taste", refused=""))
    with pytest.raises(ContractBroken, match="'methods', of its column, is no group of fedbo list: algorithms, objectives"):
        check_plugin(*plugins_of("odd"))


def test_a_selection_of_a_plugin_or_a_file_is_asked_with_its_settings(install: Install, tmp_path: Path) -> None:
    """Two of six idle agents, the last ones first, take turns by rounds; by turns the last idle one is next."""
    folder = install("coins", "1.2", ALL)
    study = {**STUDY, "objective": {"name": "quadratic", "agents": 6}, "algorithm": [{"name": "share_best", "every": 1}]}
    study |= {"timing": {}, "availability": {}}
    for who in ("last", f"{folder / 'toss_coins.py'}:Last"):
        selection = {"who": who, "share": 0.34, "others": "idle", "settings": {"step": 2}}
        run = {**study, "exchange": {"mode": "barrier", "selection": selection}}
        result = fedbo.run(run, out=tmp_path / f"run-{len(who)}")
        assert {row["agent"] for row in result.events.to_pylist() if row["kind"] == "started"} == {3, 5}
        manifest = json.loads((result.directory / "manifest.json").read_text())
        assert "selections.last" in manifest["plugins"] if who == "last" else manifest["code"]
    turns = {**study, "exchange": {"mode": "immediate", "selection": {"who": "last", "concurrency": 1}}}
    events = fedbo.run(turns, out=tmp_path / "turns").events.to_pylist()
    assert [row["agent"] for row in events if row["kind"] == "drawn"][:3] == [5, 5, 4]
    wrong = {"who": "last", "share": 0.5, "settings": {"stpe": 2}}
    with pytest.raises(StudyError, match="'last' has no setting 'stpe'; available: step"):
        load_study({**study, "exchange": {"mode": "barrier", "selection": wrong}})


def test_a_selection_that_decides_by_chance_breaks_its_contract(install: Install) -> None:
    module = """
import itertools
from dataclasses import dataclass

COUNT = itertools.count()

@dataclass(frozen=True)
class Odd:
    def choose(self, known, count, rng):
        return [(next(COUNT) // 7 + place) % len(known.agents) for place in range(count)]
"""
    install("odd", "0.1", {"selections": {"odd": "toss_{n}:Odd"}}, module)
    with pytest.raises(ContractBroken, match="has other tables at its second run"):
        check_plugin(*plugins_of("odd"))


@pytest.mark.parametrize(
    ("base", "decides", "words"),
    [
        ("Barrier", "return False", "does not end: agents 0, 1, 2, 3, 4 and others wait for an answer"),
        ("Buffered", "return rounds.messages and next(COUNT) % 3 == 0", "has other tables at its second run"),
    ],
)
def test_exchange_modes_that_hang_or_decide_by_chance_break_their_contract(
    base: str, decides: str, words: str, install: Install
) -> None:
    module = f"""
import itertools
from dataclasses import dataclass
from typing import ClassVar
from fedbo.coordinator.kernel.exchange import {base}

COUNT = itertools.count()

@dataclass(frozen=True)
class Odd({base}):
    \"\"\"An odd mode.\"\"\"
    mode: ClassVar[str] = "odd"
    def should_close(self, rounds):
        {decides}
"""
    install("odd", "0.1", {"exchanges": {"odd": "toss_{n}:Odd"}}, module)
    with pytest.raises(ContractBroken, match=words):
        check_plugin(*plugins_of("odd"))
