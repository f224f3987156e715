"""The tables of the privacy ledger of a run, and the privacy spent: one row for each algorithm in each cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fedbo.actors.storage.rows import RunKey
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.storage.snapshot_store import SnapshotIndex
from fedbo.analysis.finished_run import FinishedRun
from fedbo.analysis.grouping import by_run, runs_by_algorithm
from fedbo.analysis.records.records import Records
from fedbo.analysis.schemas import canonical
from fedbo.privacy.accounting import epsilon_of
from fedbo.privacy.gaussian import PrivacyCharge, gaussian_epsilon
from fedbo.privacy.ledger import LOCAL, PRIVACY, RELEASES, SPENT, accounted, inverse
from fedbo.study.study import Study

Array = npt.NDArray[np.float64]

BY = ("moments", "rdp", "pld", "weights", "epsilon")


@dataclass(frozen=True, slots=True)
class PrivacySummary:
    """The privacy spending of one algorithm in one cell.

    - `epsilon`: the final spending of the agent that spent most, at each of the `deltas`, in the replicate with the largest.
    - `accounts`: the same by each accountant.
    - `least`: the least that any agent spent.
    - Of the `releases` in a run, `refused` were not made.
    - `sampled` and `arrived`: the mean numbers of agents in one release; `clipped`: the share of the messages that were
      shortened; `signal`: the mean norm of a sum over the expected norm of the noise.
    - `whole`: the reason against a gain from sampling, if there is none.
    - `noise`: z; `secure`: whether a secret key generated the noise.
    """

    cell: int
    algorithm: str
    deltas: tuple[float, ...]
    epsilon: tuple[float, ...]
    least: tuple[float, ...]
    accounts: Mapping[str, tuple[float, ...]]
    releases: float
    refused: float
    sampled: float
    arrived: float
    clipped: float
    signal: float
    whole: str
    noise: float
    secure: bool


@dataclass(frozen=True, slots=True)
class PrivacyTotal:
    """The privacy spending of all private runs together, if these concern the data of the same agents.

    `epsilon` is that of the `agent` that has spent most, at each of the `deltas`, over this number of `runs` of `algorithms`:
    all cells and replicates. Methods without noise, and messages that agents make private themselves, are excluded.
    """

    algorithms: tuple[str, ...]
    runs: int
    agent: int
    deltas: tuple[float, ...]
    epsilon: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The releases of one algorithm in one cell, by number, as means over replicates; each array has one value for each.

    `epsilon` has the cumulative epsilon at the first delta, for each accountant.
    """

    epsilon: Mapping[str, Array]
    clipped: Array
    signal: Array
    arrived: Array


def ledger_tables(study: Study, folders: Mapping[RunFolder, SnapshotIndex], kept: Collection[RunKey]) -> dict[str, pa.Table]:
    """Return the privacy ledger, joined run by run, if any run was private."""
    from fedbo.execution.directory import kept_rows, parts_of  # here, since who only reads a run needs none of it

    cells = {cell.number: cell.study for cell in study.cells()}
    releases, spent = [], []
    for folder, latest in folders.items():
        parts = parts_of({folder: latest}, "releases", RELEASES)
        if parts:
            of_cell = cells[folder.key.cell]
            ledger, own = accounted(pa.concat_tables(parts), of_cell.privacy.deltas or (), of_cell.federation().n_agents)
            releases.append(ledger)
            spent.append(own)
    if folders:
        place = next(iter(folders)).path.parent
        releases += kept_rows(place, ("privacy", PRIVACY), kept)
        spent += kept_rows(place, ("privacy_agents", SPENT), kept)
    found = {"privacy": releases, "privacy_agents": spent} if releases else {}
    return {name: canonical(pa.concat_tables(tables), study.labels) for name, tables in found.items()}


def spending(result: FinishedRun) -> Records[PrivacySummary]:
    """Measure the privacy spending, one row for each algorithm in each cell that has any."""
    least = {key: np.array(own["epsilon"].to_pylist()).min(axis=0) for key, own in by_run(result.spent)}
    rows = (
        _summary(cell, label, [(entries.to_pylist(), least[key]) for key, entries in runs])
        for (cell, label), runs in runs_by_algorithm(result.privacy).items()
    )
    return Records("privacy", PrivacySummary, rows)


def spending_together(result: FinishedRun) -> PrivacyTotal | None:
    """Measure the joint privacy cost of all private runs, if they concern the same agents; None with fewer than two."""
    rows = [row for row in result.privacy.to_pylist() if row["noise_multiplier"] and row["sampling"] not in LOCAL]
    runs = {(row["cell"], row["algorithm"], row["replicate"]) for row in rows}
    if len(runs) < 2:
        return None
    deltas = tuple(dict.fromkeys(delta for row in rows for delta in row["deltas"]))
    charged = [agent for row in rows for agent in row["charged"]]
    spent = epsilon_together(rows, deltas, 1 + max(charged, default=0))
    most = int(spent.sum(axis=1).argmax())
    labels = tuple(dict.fromkeys(row["algorithm"] for row in rows))
    return PrivacyTotal(labels, len(runs), most, deltas, tuple(spent[most].tolist()))


def epsilon_together(rows: Iterable[Mapping[str, Any]], deltas: Sequence[float], n_agents: int) -> Array:
    """Compute the epsilon `(agents, deltas)` of all releases in rows of a ledger, of any number of runs.

    Runs draw independent noise and coins, so their releases compose like those of one run.
    """
    sampled: list[Counter[PrivacyCharge]] = [Counter() for _ in range(n_agents)]
    squares = np.zeros(n_agents)  # of the norms without a gain from sampling: together they are one Gaussian mechanism
    for row in rows:
        for agent, norm in zip(row["charged"], row["norms"], strict=True):
            if row["share"] == 1.0:
                squares[agent] += norm * norm
            else:
                sampled[agent][PrivacyCharge(row["share"], inverse(norm), row["sampling"], row["population"])] += 1
    mu = np.sqrt(squares)
    if not any(sampled):
        return np.stack([gaussian_epsilon(mu, delta) for delta in deltas], axis=1)
    agents = [
        charges + Counter({PrivacyCharge(1.0, inverse(part)): 1}) for charges, part in zip(sampled, mu.tolist(), strict=True)
    ]
    # Composition takes long, so that it is done once for all agents with the same charges.
    known = {charges: [epsilon_of(dict(charges), delta) for delta in deltas] for charges in set(map(_ordered, agents))}
    return np.array([known[_ordered(charges)] for charges in agents])


def _ordered(charges: Mapping[PrivacyCharge, int]) -> tuple[tuple[PrivacyCharge, int], ...]:
    """Return charges in a deterministic order, since rounding depends on it."""
    return tuple(sorted(charges.items(), key=lambda item: (item[0].share, item[0].multiplier, item[0].population)))


def _summary(cell: int, label: str, found: Sequence[tuple[list[dict[str, Any]], Array]]) -> PrivacySummary:
    every = [row for rows, _ in found for row in rows if not row["refused"]]
    accounts = {by: tuple(np.max([rows[-1][by] for rows, _ in found], axis=0).tolist()) for by in BY}
    first = found[0][0][0]
    return PrivacySummary(
        cell=cell,
        algorithm=label,
        deltas=tuple(first["deltas"]),
        epsilon=accounts.pop("epsilon"),
        least=tuple(np.min([least for _, least in found], axis=0).tolist()),
        accounts=accounts,
        releases=len(every) / len(found),
        refused=float(np.mean([sum(bool(row["refused"]) for row in rows) for rows, _ in found])),
        sampled=_mean([len(row["sampled"]) for row in every]),
        arrived=_mean([len(row["arrived"]) for row in every]),
        clipped=sum(row["clipped"] for row in every) / max(1, sum(len(row["arrived"]) for row in every)),
        signal=_mean([signal_to_noise(row) for row in every if row["noise_multiplier"]]),
        whole=first["whole"],
        noise=first["noise_multiplier"],
        secure=first["secure"],
    )


def ledgers(privacy: Any, cell: int) -> dict[str, Ledger]:
    """Return the releases of each algorithm in a cell, by number."""
    return {
        label: _ledger([[row for row in entries.to_pylist() if not row["refused"]] for _, entries in runs])
        for (number, label), runs in runs_by_algorithm(privacy).items()
        if number == cell
    }


def _ledger(found: Sequence[list[dict[str, Any]]]) -> Ledger:
    count = min(map(len, found))
    rows = [[run[number] for run in found] for number in range(count)]
    arrived = np.array([_mean([len(row["arrived"]) for row in step]) for step in rows])
    clipped = np.array(
        [sum(row["clipped"] for row in step) / max(1, sum(len(row["arrived"]) for row in step)) for step in rows]
    )
    epsilon = {by: np.array([max(row[by][0] for row in step) for step in rows]) for by in BY}
    signal = np.array([_mean([signal_to_noise(row) for row in step]) for step in rows])
    return Ledger(epsilon, clipped, signal, arrived)


def signal_to_noise(row: Mapping[str, Any]) -> float:
    """Return the norm of a release's sum over its noise's root mean square norm; infinite without noise."""
    noise = float(np.sqrt(row["numbers"] / len(row["noise"]) * np.square(row["noise"]).sum()))
    return float("inf") if noise == 0 else row["signal"] / noise


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
