"""The work of a site: it carries out the orders of the coordinator with its own objective, and keeps everything but reports."""

from __future__ import annotations

import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from fedbo.actors.host import Host
from fedbo.actors.host_storage import HostConfig
from fedbo.actors.storage.evaluations import reason_of
from fedbo.actors.storage.rows import OBSERVATIONS, RunKey, read_table
from fedbo.actors.storage.run_folder import RunFolder
from fedbo.actors.task import StepReport, StepRequest
from fedbo.algorithms.messages import decode, encode
from fedbo.privacy.noise import secret_key
from fedbo.settings.errors import warn_caller
from fedbo.settings.records import changed
from fedbo.settings.shown import quoted
from fedbo.sites.errors import PolicyError, SitesError
from fedbo.sites.mask_work import SiteMasks
from fedbo.sites.outbox import Journal, JournalRecords
from fedbo.sites.release import SiteReport, released_by
from fedbo.sites.terms import MessageCost, asked_of, cost_of, last_step, site_task
from fedbo.study.study import Study

_NUMBERS = struct.Struct("<QQqq")  # evaluations, messages, the last step, and the step of the last message


class Allowance:
    """The evaluations, steps and messages of a site, of which its policy and its study allow so many.

    - `most`: evaluations that the policy allows; `last`: the last step of the study's budget.
    - `evaluations`: those that have begun; `messages`: those that differ.

    A count is on the disk before the site goes on. A step that is carried out again has the message that it had before.
    """

    def __init__(self, records: JournalRecords, most: int, last: int) -> None:
        self._records, self._most, self._last = records, most, last
        self.evaluations, self.messages, self._step, self._spoken, self._message = 0, 0, -1, -1, b""
        for record in records.read():
            kind, numbers, message = record[:1], record[1 : 1 + _NUMBERS.size], record[1 + _NUMBERS.size :]
            self.evaluations, self.messages, self._step, self._spoken = _NUMBERS.unpack(numbers)
            self._message = message if kind == b"M" else self._message

    def evaluate(self, times: int) -> None:
        """Count evaluations that are about to begin; PolicyError where these are more than the policy allows."""
        if self.evaluations + times > self._most:
            words = f"the coordinator asks for more than the {self._most} evaluations that the policy of this site allows"
            raise PolicyError(f"{words}, repeated ones included; raise `evaluations` in policy.toml, and run fedbo join again")
        self.evaluations += times
        self._write(b"N")

    def begin(self, step: int) -> None:
        """Begin a step, perhaps again; SitesError for one beyond the study's budget, or before the last one."""
        if not max(0, self._step) <= step <= self._last:
            words = f"the terms of the study end with step {self._last}, and this site is at step {self._step}"
            raise SitesError(f"the coordinator orders step {step}, but {words}; ask whoever runs the coordinator why")
        if step > self._step:
            self._step = step
            self._write(b"N")

    def message(self, step: int, data: bytes) -> bytes:
        """Return the message of a step: `data`, or what the step has sent before."""
        if step > self._spoken:
            self._spoken, self._message, self.messages = step, data, self.messages + 1
            self._write(b"M")
        return self._message

    def _write(self, kind: bytes) -> None:
        numbers = _NUMBERS.pack(self.evaluations, self.messages, self._step, self._spoken)
        if self._records.is_long:
            self._records.replace([b"M" + numbers + self._message])
        else:
            self._records.append(kind + numbers + (self._message if kind == b"M" else b""))


ALLOWANCE = "allowance.journal"
_POLL = 0.5  # seconds between two looks at whether the study has ended
_PAUSE = 0.05  # seconds between two looks at whether a first answer has come


class Orders(Protocol):
    """The coordinator as its site sees it; heart beats leave from a thread of its own."""

    @property
    def ended(self) -> int | None:
        """The last step that counts, once the study has ended."""

    @property
    def refused(self) -> str | None:
        """Why the coordinator refuses this site; None while it does not."""

    @property
    def lost(self) -> bool:
        """Whether the coordinator has not answered for longer than the site's patience."""

    def next_order(self, timeout: float) -> StepRequest | None:
        """Return the order that has no report yet, which is on the disk, after `timeout` seconds at most."""

    def evaluating(self, lease: int | None) -> None:
        """Note which order is being carried out."""

    def report(self, report: SiteReport) -> None:
        """Write a report to the disk, from where it is sent until it is acknowledged."""

    def answer(self, number: int, data: bytes) -> None:
        """Send the answer to a letter of the coordinator."""

    def study_time(self) -> float | None:
        """Return the time of the study by the coordinator's last answer; None before the first."""


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """The work of a site in a study.

    `begun` counts all evaluations that have begun, also repeated ones and those cut short, and `messages` those that differ;
    `cost` is the most that these have cost, None without noise.
    `first_error` is the reason of the first failed evaluation, empty without one; `best` the best native value that the
    objective has returned, None without one, at the native `point`; `directory` holds the site's observations.
    """

    agent: int
    evaluations: int
    failed: int
    begun: int
    messages: int
    cost: MessageCost | None
    first_error: str
    best: float | None
    point: dict[str, float]
    directory: Path

    def facts(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        cost = None if self.cost is None else self.cost._asdict()
        return {**asdict(self), "cost": cost, "directory": str(self.directory)}


class SiteWork:
    """One site at work for its agent, whose files are in the folder of its run; it begins where an earlier process ended.

    `own` is the objective, and `most` the largest number of evaluations that the site allows, repeated ones included. With
    `isolate` each evaluation has a process of its own. With `masks` messages leave masked, as answers to letters.

    No order takes back what the site has counted: its evaluations, its steps, and the message of each step.
    """

    def __init__(
        self, study: Study, agent: int, own: Any, folder: Path, most: int, isolate: bool = False, masks: SiteMasks | None = None
    ) -> None:
        self._agent, self._masks, self._study = agent, masks, study
        self._share, self._federation = asked_of(study).share, study.federation()
        self._home = RunFolder.of(folder, RunKey(0, study.labels[0], 0)).claim()
        self._host, secret = Host(), folder / "secret.key"
        if (folder / ALLOWANCE).exists() and not secret.exists():
            words = "is missing, and another one was drawn: a step that is repeated draws other points, and another message"
            warn_caller(f"'{secret}': {words}; restore a copy of the file before the site goes on", RuntimeWarning)
        self._task = task = site_task(study, agent, own, secret_key(secret))
        initial, iterations, pulls = task.budget_of(agent)
        if (needed := pulls or initial + iterations * (task.algorithm.queries or 1)) > most:
            words = f"the study needs {needed} evaluations, but the policy of this site allows {most}"
            raise PolicyError(f"{words}; raise `evaluations` in policy.toml, and run fedbo join again")
        self._upload, self._journal = task.algorithm.upload(task.problem), Journal(folder / ALLOWANCE)
        self._allowance = Allowance(self._journal, most, last_step(study, agent))
        counted = self._allowance.evaluate
        self._host.load(task, [agent], HostConfig(self._home, real=True, isolate=isolate, counted=counted))

    def run(self, orders: Orders) -> SiteSummary:
        """Carry out orders until the study has ended; SitesError when the site is refused, or must stop."""
        try:
            while (counted := orders.ended) is None:
                if orders.refused is not None:
                    raise SitesError(f"the coordinator refuses this site: {orders.refused}")
                if orders.lost:
                    raise SitesError("the coordinator has not answered for too long; all work is kept: run fedbo join again")
                order = orders.next_order(_POLL)
                # An order from before this process began may belong to a round of masks that the first answer tells of.
                is_current = self._masks is None or orders.study_time() is not None
                if order is not None and not is_current:
                    time.sleep(_PAUSE)
                elif order is not None:
                    self._carry_out(order, orders)
            return self._finish(counted)
        finally:
            self._host.close()
            self._journal.close()

    def _carry_out(self, order: StepRequest, orders: Orders) -> None:
        """Carry out an order and put its report on the disk."""
        self._allowance.begin(order.step)
        if (now := orders.study_time()) is not None:
            self._host.begin(time.time() - now)
        orders.evaluating(order.lease)
        reports = self._host.work((), [order])
        orders.evaluating(None)
        if not reports:
            raise SitesError(
                f"another process works for this site; end it, or this one stays ended ({quoted(self._home.path)})"
            )
        report = self._once(reports[0])
        if report.failure is not None:
            raise SitesError(f"{report.failure}; mend the objective, and run fedbo join again")
        done = self._host.agents[self._agent].uncommitted
        assert done is not None, "a step that was reported is there until it counts"
        dim = len(self._federation.parameters)
        if self._masks is not None and report.payload:
            (vector,) = report.payload.values()
            if (masked := self._masks.mask(report.step, vector)) is not None:
                orders.answer(*masked)
        orders.report(released_by(report, done.result.rows(done.before.t_n), dim, self._share))

    def _once(self, report: StepReport) -> StepReport:
        """Return a report with the message of its step: if the step was carried out before, the one that it sent then."""
        if not report.payload or self._upload is None:
            return report
        data = encode(report.payload, self._upload)
        kept = self._allowance.message(report.step, data)
        return report if kept == data else changed(report, payload=decode(kept, self._upload))

    def _finish(self, counted: int) -> SiteSummary:
        """Write the tables of the site, with the steps that count."""
        written = self._host.finish((), 1, "observations", {self._agent: counted})
        tables = [name for name in written if name.startswith("observations-")]
        rows = [row for name in tables for row in read_table(self._home.path / name, OBSERVATIONS).to_pylist()]
        good = [row for row in rows if row["error"] is None]
        errors = [row["error"] for row in rows if row["error"] is not None]
        best = max(good, key=lambda row: row["value"], default=None)
        metric, names = self._federation.metric, [parameter.name for parameter in self._federation.parameters]
        return SiteSummary(
            agent=self._agent,
            evaluations=len(rows),
            failed=len(errors),
            begun=self._allowance.evaluations,
            messages=self._allowance.messages,
            cost=cost_of(self._study, self._allowance.messages),
            first_error=reason_of(errors[0]) if errors else "",
            best=None if best is None else float(metric.native(best["value"])),
            point={} if best is None else dict(zip(names, best["x"], strict=True)),
            directory=self._home.path,
        )
