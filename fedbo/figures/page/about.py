"""Facts about a run in a report, apart from its figures: the request, the failures, and the commands to repeat it."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from fedbo.actors.storage.evaluations import reason_of
from fedbo.algorithms.reveals import meaning_of
from fedbo.analysis.result import Result
from fedbo.figures.cells import is_swept

_MOST = 8  # different errors that are shown whole


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of evaluations: its count, the first evaluation with it, its first line and its full text."""

    count: int
    first: str
    line: str
    traceback: str


def asked(result: Result) -> list[tuple[str, str]]:
    """List the settings and the versions of the run, as names and values."""
    study, manifest = result.study, result.manifest
    initial = "a swept number of" if is_swept(study, "agents.initial") else study.agents.initial
    mode = "swept" if is_swept(study, "exchange.mode") else study.exchange.mode
    objective = study.objective.name
    short = {
        key: value
        for key, value in study.objective.settings.items()
        if isinstance(value, int | float | str) and len(str(value)) < 60
    }
    settings = ", ".join(f"{key} = {value}" for key, value in short.items())
    facts = {
        "question": study.study.description or "",
        "objective": f"{objective} ({settings})" if settings else objective,
        "metric": f"{result.metric().name}, to {result.metric().direction}",
        "agents": f"{len({trace.agent for trace in result.traces}):,}, each with {initial} initial points",
        "budget": "swept" if is_swept(study, "budget") else f"{study.budget.in_words} for each agent",
        "algorithms": ", ".join(study.labels),
        "messages reveal": "; ".join(
            f"{label}: {word} ({meaning_of(word)})" for label, word in manifest.get("reveals", {}).items()
        ),
        "replicates": f"{study.study.replicates}, seed {study.study.seed}",
        "exchange": f"{mode}, {'real time' if study.timing.clock == 'wall' else 'virtual time'}",
        "faults": ", ".join(fault.kind for fault in study.fault),
        "swept": ", ".join(study.sweep),
        "status": str(manifest["status"]) + (f": {str(error).splitlines()[0]}" if (error := manifest.get("error")) else ""),
        "ran": _ran(manifest),
        "versions": ", ".join(f"{name} {number}" for name, number in manifest.get("versions", {}).items()),
        "platform": str(manifest.get("platform", "")),
        "study SHA-256": str(manifest.get("study_sha256", "")),
    }
    return [(name, value) for name, value in facts.items() if value]


def _ran(manifest: Any) -> str:
    began, seconds = manifest.get("started"), manifest.get("seconds")
    words = f"{str(began)[:16].replace('T', ' ')} UTC" if began else ""
    return f"{words}, {seconds:,.1f} seconds" if words and seconds is not None else words


def grouped_failures(result: Result) -> list[Failure]:
    """Group the failed evaluations by their error, the most frequent first; forgotten ones are no failures."""
    table = result.observations.select(["algorithm", "replicate", "agent", "step", "error"])
    rows = [row for row in table.filter(pc.is_valid(table["error"])).to_pylist() if not row["error"].startswith("forgotten")]
    counts = Counter(reason_of(row["error"]) for row in rows)
    firsts: dict[str, Any] = {}
    for row in rows:
        firsts.setdefault(reason_of(row["error"]), row)
    return [
        Failure(count, "{algorithm}, replicate {replicate}, agent {agent}, step {step}".format(**firsts[line]), line,
                "\n".join(firsts[line]["error"].splitlines()[1:]))
        for line, count in counts.most_common(_MOST)
    ]  # fmt: skip


def again(result: Result) -> str:
    """Return the commands that repeat the run from its resolved study, and verify it."""
    name = shlex.quote(f"{result.directory.resolve().name}-anew")
    lines = [f"fedbo run study.toml --out {name}", f"fedbo replay {name} --verify"]
    return "\n".join(lines)


def as_link(text: str) -> str:
    """Encode a text as a link, which can be saved without a server."""
    return f"data:application/toml;base64,{base64.b64encode(text.encode()).decode()}"


def titles(results: Sequence[Result]) -> list[str]:
    """Return the names of runs: their studies, and their directories if those are ambiguous."""
    names = [result.study.study.name for result in results]
    doubled = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{name} ({result.directory.resolve().name})" if name in doubled else name
        for name, result in zip(names, results, strict=True)
    ]


def chips(result: Result) -> list[str]:
    """List the main facts of a run, a few words each."""
    study, count = result.study, result.study.study.replicates
    facts = [
        f"{len({trace.agent for trace in result.traces}):,} agents",
        f"{count} replicate{'s' * (count > 1)}",
        "budget: swept" if is_swept(study, "budget") else study.budget.in_words,
        "exchange: swept" if is_swept(study, "exchange.mode") else f"{study.exchange.mode} exchange",
        "real time" if study.timing.clock == "wall" else "virtual time",
        f"seed {study.study.seed}",
    ]
    return [*facts, f"{len(study.titles())} cells"] if study.sweep else facts
