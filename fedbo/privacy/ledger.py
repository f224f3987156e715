"""The privacy ledger: one entry for each release, and the accumulated cost, for a study and for each agent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedbo.actors.storage.evaluations import column
from fedbo.actors.storage.rows import RunKey
from fedbo.algorithms.base import Array, Disclosure
from fedbo.privacy.accounting import ACCOUNTANTS, epsilon, running
from fedbo.privacy.gaussian import PrivacyCharge, gaussian_epsilon

_AGENTS = pa.list_(pa.field("item", pa.int32(), nullable=False))
_NUMBERS = pa.list_(pa.field("item", pa.float64(), nullable=False))
_RUN = [column("cell", pa.int32()), column("algorithm", pa.string()), column("replicate", pa.int32())]
_EPSILONS = ("moments", "rdp", "pld", "weights", "epsilon")

# The entries of the ledger, as a run writes them.
RELEASES = pa.schema(
    [
        *_RUN,
        column("time", pa.float64()),
        column("release", pa.int32()),
        column("eligible", _AGENTS),
        column("sampled", _AGENTS),
        column("arrived", _AGENTS),
        column("clipped", pa.int32()),
        column("clip", pa.float64()),
        column("sensitivity", pa.float64()),
        column("noise_multiplier", pa.float64()),
        column("noise", _NUMBERS),
        column("numbers", pa.int32()),
        column("share", pa.float64()),
        column("sampling", pa.string()),
        column("population", pa.int32()),
        column("charged", _AGENTS),
        column("norms", _NUMBERS),
        column("whole", pa.string()),
        column("secure", pa.bool_()),
        column("signal", pa.float64()),
        column("refused", pa.string()),
    ]
)
# The same with the epsilon spent by then, at each of the deltas.
PRIVACY = pa.schema([*RELEASES, column("deltas", _NUMBERS), *(column(name, _NUMBERS) for name in _EPSILONS)])
# What each agent has spent in the end.
SPENT = pa.schema(
    [
        *_RUN,
        column("agent", pa.int32()),
        *(column(name, pa.int32()) for name in ("eligible", "sampled", "arrived", "charged")),
        column("deltas", _NUMBERS),
        column("epsilon", _NUMBERS),
    ]
)


class LedgerEntry(NamedTuple):
    """One release in the ledger, or one that was `refused`.

    `norms` are those of the largest possible contributions of the `charged` agents, over the noise; each pays at `share` under
    `sampling`, of a `population` where their number is fixed. `signal` serves studies of the method, and is never published.
    """

    time: float
    """Time of the release."""
    release: int
    """Number of the release, from 0."""
    eligible: list[int]
    """Agents that could have been asked."""
    sampled: list[int]
    """Agents that were asked."""
    arrived: list[int]
    """Agents whose messages are in the release."""
    clipped: int
    """Number of messages that were clipped."""
    clip: float
    """Clipping norm S."""
    sensitivity: float
    """Sensitivity S phi_max / q."""
    noise_multiplier: float
    """Noise multiplier z."""
    noise: list[float]
    """Standard deviation of the noise in each block."""
    numbers: int
    """Released numbers, P M."""
    share: float
    """Charged sampling rate q; 1 without a gain from sampling."""
    sampling: str
    """`poisson`, `fixed`, or the mechanism of a message that its sender has hidden."""
    population: int
    """Agents among whom a fixed number was drawn."""
    charged: list[int]
    """Agents that were charged."""
    norms: list[float]
    """Largest contribution of each charged agent, over the noise."""
    whole: str
    """Reason why there is no gain from sampling; empty where there is one."""
    secure: bool
    """Whether the noise came from a secret key."""
    signal: float
    """Norm of the sum before noise; private."""
    refused: str
    """Reason why the release was not made; empty where it was."""

    @property
    def charge(self) -> PrivacyCharge:
        """Return the charge of the agent with the highest cost."""
        return PrivacyCharge(self.share, inverse(max(self.norms, default=0.0)), self.sampling, self.population)


LOCAL = ("laplace", "exponential")  # the `sampling` of entries whose senders have hidden them, by mechanism


def local_entry(agent: int, number: int, disclosure: Disclosure, now: float) -> LedgerEntry:
    """Return the entry of one agent's message that it has hidden, charged its epsilon.

    `norms` has that epsilon, `noise_multiplier` its inverse, and `noise` the standard deviation, NaN for a choice.
    """
    deviation = math.sqrt(2.0) * disclosure.scale if disclosure.mechanism == "laplace" else math.nan
    return LedgerEntry(
        time=now,
        release=number,
        eligible=[agent],
        sampled=[agent],
        arrived=[agent],
        clipped=0,
        clip=1.0,
        sensitivity=disclosure.sensitivity,
        noise_multiplier=1.0 / disclosure.epsilon,
        noise=[deviation],
        numbers=disclosure.numbers,
        share=1.0,
        sampling=disclosure.mechanism,
        population=0,
        charged=[agent],
        norms=[disclosure.epsilon],
        whole="each agent hides its own messages",
        secure=False,
        signal=0.0,
        refused="",
    )


def inverse(norm: float) -> float:
    """Return the noise multiplier for the norm of a contribution over its noise."""
    return math.inf if norm == 0.0 else 1.0 / norm


def table_of(entries: Sequence[LedgerEntry], key: RunKey) -> pa.Table:
    """Write entries as a table with the columns `RELEASES`."""
    columns = [*([part] * len(entries) for part in key), *map(list, zip(*entries, strict=True))]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, RELEASES, strict=False)]
    return pa.Table.from_arrays(arrays, schema=RELEASES) if entries else RELEASES.empty_table()


def accounted(releases: pa.Table, deltas: Sequence[float], n_agents: int) -> tuple[pa.Table, pa.Table]:
    """Account for one run: its releases with the epsilon spent so far (`PRIVACY`), and each agent's total (`SPENT`).

    `moments`, `rdp` and `pld` charge every release its declared noise multiplier z; `weights` charges the largest contribution
    under the actual weights. NaN marks releases that an accountant does not support. `epsilon` is the smallest of them, since
    all are upper bounds. It belongs to the agent that has spent most.
    """
    rows = releases.to_pylist()
    entries = [LedgerEntry(**{name: row[name] for name in LedgerEntry._fields}) for row in rows]
    if entries and entries[0].sampling in LOCAL:
        return _local(releases, rows, deltas, n_agents)
    whole = any(entry.whole for entry in entries)
    found = _whole(entries, tuple(deltas), n_agents) if whole else _sampled(entries, tuple(deltas))
    found["epsilon"] = np.fmin.reduce(list(found.values()))
    columns = {"deltas": [list(deltas)] * len(entries), **{name: values.tolist() for name, values in found.items()}}
    for name in PRIVACY.names[len(RELEASES) :]:
        releases = releases.append_column(PRIVACY.field(name), pa.array(columns[name], _NUMBERS))
    own = _own(entries, deltas, n_agents, whole)
    last = found["epsilon"][-1] if entries else np.zeros(len(deltas))
    return releases, _spent(rows, np.fmin(own, last), deltas)


def _local(
    releases: pa.Table, rows: Sequence[dict[str, Any]], deltas: Sequence[float], n_agents: int
) -> tuple[pa.Table, pa.Table]:
    """Account for messages that agents made private themselves: no evaluation is in two means, but in every choice.

    So epsilon is the largest of an agent's messages, or their sum. It is pure, and so the same at every delta. The accountants
    of sums with Gaussian noise do not apply.
    """
    spent, own = 0.0, np.zeros((n_agents, len(deltas)))
    running = []
    for row in rows:
        (agent,), (cost,) = row["charged"], row["norms"]
        own[agent] = own[agent] + cost if row["sampling"] == "exponential" else np.maximum(own[agent], cost)
        spent = max(spent, float(own[agent].max()))
        running.append([spent] * len(deltas))
    unknown = [[math.nan] * len(deltas)] * len(rows)
    columns = {"deltas": [list(deltas)] * len(rows), **dict.fromkeys(_EPSILONS, unknown), "epsilon": running}
    for name in PRIVACY.names[len(RELEASES) :]:
        releases = releases.append_column(PRIVACY.field(name), pa.array(columns[name], _NUMBERS))
    return releases, _spent(rows, own, deltas)


def _sampled(entries: Sequence[LedgerEntry], deltas: tuple[float, ...]) -> dict[str, Array]:
    """Return epsilon `(releases, deltas)` by accountant, with a gain from sampling."""
    counted = [entry for entry in entries if entry.norms]
    place = np.cumsum([bool(entry.norms) for entry in entries], dtype=int)
    tight = [entry.charge for entry in counted]
    nominal = [replace(charge, multiplier=entry.noise_multiplier) for charge, entry in zip(tight, counted, strict=True)]
    able = ("rdp",) if any(entry.sampling == "fixed" for entry in counted) else ACCOUNTANTS
    nothing, unknown = np.zeros((1, len(deltas))), np.full((len(counted), len(deltas)), np.nan)
    found = {by: _running(tuple(nominal), deltas, by) if by in able else unknown for by in ACCOUNTANTS}
    found["weights"] = _running(tuple(tight), deltas, able[-1])
    return {by: np.vstack([nothing, values])[place] for by, values in found.items()}


def _whole(entries: Sequence[LedgerEntry], deltas: tuple[float, ...], n_agents: int) -> dict[str, Array]:
    """Return epsilon `(releases, deltas)` by accountant; each release is charged to the agents whose messages are in it."""
    counts, squares = np.zeros(n_agents, dtype=int), np.zeros(n_agents)
    most, largest = [], []
    for entry in entries:
        counts[entry.charged] += 1
        squares[entry.charged] += np.square(entry.norms)
        most.append(int(counts.max()))
        largest.append(float(squares.max()))
    multiplier = entries[0].noise_multiplier
    nothing, charges = np.zeros((1, len(deltas))), (PrivacyCharge(1.0, multiplier),) * most[-1]
    found = {by: np.vstack([nothing, _running(charges, deltas, by)])[most] for by in ACCOUNTANTS}
    found["weights"] = np.stack([gaussian_epsilon(np.sqrt(largest), delta) for delta in deltas], axis=1)
    return found


@lru_cache(maxsize=64)
def _running(charges: tuple[PrivacyCharge, ...], deltas: tuple[float, ...], by: str) -> Array:
    """Account for charges in their order; cached, since all replicates have the same charges."""
    return running(charges, deltas, by)


def _own(entries: Sequence[LedgerEntry], deltas: Sequence[float], n_agents: int, whole: bool) -> Array:
    """Return each agent's spent epsilon `(agents, deltas)`, by the actual weights."""
    if whole:
        squares = np.zeros(n_agents)
        for entry in entries:
            squares[entry.charged] += np.square(entry.norms)
        return np.stack([gaussian_epsilon(np.sqrt(squares), delta) for delta in deltas], axis=1)
    histories: list[list[tuple[int, float]]] = [[] for _ in range(n_agents)]
    for place, entry in enumerate(entries):
        for agent, norm in zip(entry.charged, entry.norms, strict=True):
            histories[agent].append((place, norm))
    known: dict[tuple[tuple[int, float], ...], list[float]] = {}
    for history in {*map(tuple, histories)}:
        charges = Counter(replace(entries[place].charge, multiplier=inverse(norm)) for place, norm in history)
        by = "rdp" if any(charge.sampling == "fixed" for charge in charges) else "pld"
        # In an order of their own, since rounding depends on it, and that of a set on the process.
        counted = tuple(sorted(charges.items(), key=lambda item: (item[0].multiplier, item[0].share, item[0].population)))
        known[history] = [_epsilon(counted, delta, by) for delta in deltas]
    return np.array([known[tuple(history)] for history in histories])


@lru_cache(maxsize=256)
def _epsilon(charges: tuple[tuple[PrivacyCharge, int], ...], delta: float, by: str) -> float:
    return epsilon(dict(charges), delta, by)


def _spent(rows: Sequence[dict[str, Any]], own: Array, deltas: Sequence[float]) -> pa.Table:
    counts = {}
    for name in ("eligible", "sampled", "arrived", "charged"):
        counts[name] = np.zeros(len(own), dtype=int)
        for row in rows:
            counts[name][row[name]] += 1
    size = len(own) if rows else 0
    columns = {name: [rows[0][name]] * size if rows else [] for name in ("cell", "algorithm", "replicate")}
    columns |= {"agent": list(range(size)), **{name: list(values[:size]) for name, values in counts.items()}}
    columns |= {"deltas": [list(deltas)] * size, "epsilon": own[:size].tolist()}
    return pa.Table.from_arrays([pa.array(columns[field.name], field.type) for field in SPENT], schema=SPENT)
