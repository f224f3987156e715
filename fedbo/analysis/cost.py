"""The cost of a study, estimated from its file before it runs, and a warning that its steps may be interrupted forever."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from math import log

from fedbo.actors.task import AgentBudget
from fedbo.algorithms.base import Algorithm, Phased, Private, Problem
from fedbo.algorithms.messages import declared_size
from fedbo.coordinator.endless import STARTS
from fedbo.coordinator.environment.availability import Trace
from fedbo.coordinator.environment.faults import Crash
from fedbo.coordinator.environment.measured import Empirical
from fedbo.objectives.base import described
from fedbo.settings.rooms import optional_or
from fedbo.study.agents.histories import history_sources
from fedbo.study.environment.groups import budgets_of, common_budget
from fedbo.study.environment.models import capacities
from fedbo.study.limits import ROW, STEPS, expected_decisions
from fedbo.study.study import Study
from fedbo.study.tables import AlgorithmTable

MIB = 2**20
PROCESS = 250 * MIB  # this process or one worker, with NumPy, SciPy, scikit-learn and Ray imported
ACTOR = 40 * MIB  # the memory of one more Ray actor that it does not share, measured on Linux


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of a study: evaluations, Ray actors at a time, bytes of memory, messages and bytes each way.

    `twins` describes objectives that stand for others, such as those of tables.
    """

    runs: int
    evaluations: int
    actors: int
    memory: int
    messages_up: int
    bytes_up: int
    bytes_down: int
    twins: tuple[str, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of the estimate."""
        return (
            "decisions and message fields of variable length count as one point",
            "an algorithm with phases makes the maximum number of them",
            "every message has its declared size and gets an answer",
            "nothing fails, is late or is lost, and only selected agents send messages",
            f"a process takes {PROCESS // MIB} MiB and an actor {ACTOR // MIB} MiB, without data and surrogates",
            *(f"{twin} may replace the objective itself" for twin in self.twins),
        )


def estimate_cost(study: Study) -> CostEstimate:
    """Add up all cells, algorithms and replicates of a study."""
    parts = [_run(cell.study, table) for cell in study.cells() for table in cell.study.algorithm]
    repeats = study.study.replicates
    evaluations, messages, up, down, points = (repeats * sum(part[place] for part in parts) for place in range(5))
    before = sum(_history(cell.study) for cell in study.cells())
    evaluations, points = evaluations + before, points + before
    actors = _actors(study)
    processes = 1 if study.hosting.kind == "inline" and not actors else 2 + actors
    return CostEstimate(
        twins=tuple(dict.fromkeys(filter(None, (described(cell.study.federation()) for cell in study.cells())))),
        runs=repeats * len(parts),
        evaluations=evaluations,
        actors=actors,
        memory=PROCESS * min(processes, 3) + ACTOR * actors + ROW * points,
        messages_up=messages,
        bytes_up=up,
        bytes_down=down,
    )


def _run(study: Study, table: AlgorithmTable) -> tuple[int, int, int, int, int]:
    """Count evaluations, messages up, bytes up, bytes down, and points of one replicate."""
    problem = study.problem_of(table)
    algorithm = table.make()
    targets, phases = len(problem.targets), algorithm.phases(problem) if isinstance(algorithm, Phased) else math.inf
    most = expected_decisions(study) if study.budget.is_open else math.inf
    budgets = {own: (count, int(min(own.iterations, phases, most))) for own, count in _budgets(study, problem).items()}
    points = sum(count * (own.initial + made * (algorithm.queries or 1)) for own, (count, made) in budgets.items())
    decisions = int(min(problem.iterations, phases, most))
    declared, selection = algorithm.upload(problem), study.exchange.make().selection
    if declared is not None and selection.idles:  # the first step of an agent is its initial points, whenever it is asked
        turns, begun = targets * selection.share * (decisions + 1), targets * (1 - (1 - selection.share) ** (decisions + 1))
        points = round(begun * problem.initial + (turns - begun) * (algorithm.queries or 1))
    evaluations = sum(count * own.pulls for own, (count, _) in budgets.items()) or points
    if declared is None:
        return evaluations, 0, 0, 0, min(points, evaluations)
    others = (problem.n_agents - targets) * algorithm.sends(0)
    messages = sum(count * _sends(algorithm, made) for count, made in budgets.values()) + others
    sent = round(messages * _asked(study, algorithm, problem))
    answered = messages if isinstance(algorithm, Private) else sent
    more_up, more_down = optional_or("mask_bytes", (0, 0))(study, algorithm, problem)
    up, down = declared_size(declared) + more_up, declared_size(algorithm.download(problem)) + more_down
    return evaluations, sent, sent * up, answered * down, min(points, evaluations)


def _budgets(study: Study, problem: Problem) -> Counter[AgentBudget]:
    """Count the targets by their budgets; a centralised agent has that of the problem."""
    own = budgets_of(study) if problem.n_agents == study.federation().n_agents else {}
    found = Counter(own.values()) or Counter({common_budget(study): len(problem.targets)})
    return found if problem.initial else Counter({one._replace(initial=0): count for one, count in found.items()})


def _sends(algorithm: Algorithm, decisions: int) -> int:
    """Count the steps that send; a very long run is extrapolated from its first steps."""
    looked = min(decisions, STEPS)
    count = sum(algorithm.sends(step) for step in range(looked + 1))
    return count if looked == decisions else round(count * (decisions + 1) / (looked + 1))


def _asked(study: Study, algorithm: Algorithm, problem: Problem) -> float:
    """Return the mean share of the messages that agents are asked for."""
    selection = study.exchange.make().selection
    if isinstance(algorithm, Private):
        return algorithm.mechanism(problem).share
    return 1.0 if selection.who == "all" else selection.share


def _history(study: Study) -> int:
    """Count the evaluations of earlier tasks; those from a file or a run cost nothing."""
    sources = [source for source in history_sources(study) if source.table.algorithm is not None]
    counts = [(source.table.observations or 0) * len(source.agents) for source in sources]
    return sum(
        count * (study.study.replicates if source.table.fresh else 1) for count, source in zip(counts, sources, strict=True)
    )


def _actors(study: Study) -> int:
    """Count the simultaneous Ray actors: coordinators for inline hosting, otherwise one coordinator and the hosts of agents."""
    hosting = study.hosting
    hosts = hosting.hosts(study.federation().n_agents)
    return 1 + hosts if hosts else hosting.workers or 0


def endless_warning(study: Study) -> str | None:
    """Return a line about the first fault that begins more often than an evaluation lasts; None if there is none.

    An evaluation of length D ends before the next crash of a Poisson process with probability exp(-rate D). A run is given up
    after `STARTS` steps that did not.
    """
    for cell in study.cells():
        mean = getattr(cell.study.timing.evaluation.make(), "mean", None)
        for table in cell.study.fault:
            fault = table.make()
            if isinstance(fault, Crash) and fault.rate and mean is not None and fault.rate * mean > log(STARTS):
                words = f"{fault.rate * mean:.3g} crashes are expected per evaluation of mean length {mean:g}"
                return f"{words}, so a step may never end; decrease [[fault]] rate = {fault.rate:g}, or shorten evaluations"
    return None


def unused_ids(study: Study) -> str | None:
    """Return a line about the first file of times with more ids than agents; None if there is none."""
    for cell in study.cells():
        tables, count, devices = cell.study, cell.study.federation().n_agents, cell.study.timing.devices
        models = [(tables.availability, "[availability]"), (tables.timing.evaluation, "[timing] evaluation")]
        models += [(tables.timing.latency, "[timing] latency")]
        for group in tables.group:
            own = (group.availability, group.evaluation, group.latency)
            models += [(table, f"[[group]] '{group.name}'") for table in own if table is not None]
        made = [(table.make(), where) for table, where in models if table.settings.get("data") is None]
        found = [(model.ids, where) for model, where in made if isinstance(model, Trace | Empirical)]
        found += [] if devices is None else [(len(capacities(devices)), "[timing] devices")]
        for ids, where in found:
            if ids > count:
                return f"{where}: the file has {ids:,} ids for {count:,} agents; only the {count:,} smallest are used"
    return None
