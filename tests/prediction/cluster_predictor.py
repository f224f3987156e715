"""A prediction of every placement on the workers of a cluster, from the page on the cluster's model alone.

It shares no code with the package. An agent has a list of evaluations, each of its own constant length, of which `parallel` may
be under way at once; the next one is queued when another one ends.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

World = dict[str, Any]
FIRST = (
    "submitted",
    "leaves",
    "preempted",
    "warned",
    "joins",
    "returned",
    "started",
    "ended",
    "looked",
)  # within an instant; placement comes last


class Job:
    def __init__(self, agent: int, index: int, work: float, number: int) -> None:
        self.agent, self.index, self.work, self.number = agent, index, work, number
        self.worker, self.begun, self.turn = -1, 0.0, 0
        self.is_copy = False
        self.other: Any = None  # the copy of this one, or what it is a copy of
        self.length, self.cpus = work, 0.0  # of a part of a job of the log, whose row is `index`

    @property
    def is_load(self) -> bool:
        return self.agent < 0


class Queue:
    def __init__(self, world: World) -> None:
        self.world, self.placed, self.lasted = world, list[tuple[float, int, int, int, bool]](), list[float]()
        self.classes = [group for group in world["classes"] for _ in range(group["count"])]
        self.away = [int(group["joins"] > 0) for group in self.classes]
        self.on: list[list[Job]] = [[] for _ in self.classes]
        self.waiting, self.heap, self.count, self.arrived = list[Job](), list[Any](), 0, 0
        self.next = [0] * world["agents"]
        self.others, self.parts = list[Any](), 0  # what happens to jobs of the log, and to workers that follow the queue
        self.off, self.starting, self.idle = set[int](), 0, dict[int, float]()
        for number, group in self.followed():
            for worker in self.workers_of(number)[group["least"] :]:
                self.off.add(worker)
                self.away[worker] += 1
            for worker in self.workers_of(number):
                if not self.away[worker]:
                    self.idle[worker] = 0.0

    def followed(self) -> list[tuple[int, dict[str, Any]]]:
        return [(number, group) for number, group in enumerate(self.world["classes"]) if group["least"] is not None]

    def workers_of(self, number: int) -> list[int]:
        group = self.world["classes"][number]
        return [worker for worker, own in enumerate(self.classes) if own is group]

    def schedule(self, time: float, kind: str, *what: Any) -> None:
        self.count += 1
        heapq.heappush(self.heap, (time, FIRST.index(kind), self.count, kind, what))

    def run(self) -> list[tuple[float, int, int, int, bool]]:
        for worker, group in enumerate(self.classes):
            if group["joins"] > 0:
                self.schedule(group["joins"], "joins", worker)
            if group["leaves"] < math.inf:
                self.schedule(group["leaves"], "leaves", worker)
        for fault in self.world["preemptions"]:
            for worker, group in enumerate(self.classes):
                if fault["workers"] in ("all", group["name"]):
                    for time in fault["at"]:
                        self.schedule(time, "preempted", worker, fault)
        most = max(group["has"][0] for group in self.world["classes"])
        for row, (submit, _, end, cores) in enumerate(self.world["jobs"]):
            if end <= self.world["start"] and submit < self.world["start"]:
                continue
            self.schedule(max(0.0, submit - self.world["start"]) / self.world["unit"], "submitted", row, cores, most)
        for now in [0.0] if self.heap else []:
            early = sorted(entry for entry in self.heap if entry[0] == now and entry[3] == "submitted")
            jobs = self.world["jobs"]
            for entry in sorted(early, key=lambda entry: (jobs[entry[4][0]][1] > self.world["start"], jobs[entry[4][0]][0])):
                self.submitted(now, *entry[4])
                self.heap.remove(entry)
        heapq.heapify(self.heap)
        for agent in range(self.world["agents"]):
            for _ in range(min(self.world["parallel"], self.world["evaluations"])):
                self.queue(agent)
        self.place(0.0) if not (self.heap and self.heap[0][0] == 0.0) else None
        while self.heap:
            now = self.heap[0][0]
            while self.heap and self.heap[0][0] == now:
                _, _, _, kind, what = heapq.heappop(self.heap)
                getattr(self, kind)(now, *what)
            self.place(now)
        return self.placed

    def queue(self, agent: int) -> None:
        if self.next[agent] < self.world["evaluations"]:
            self.waiting.append(Job(agent, self.next[agent], self.world["lengths"][agent], self.arrived))
            self.next[agent], self.arrived = self.next[agent] + 1, self.arrived + 1

    def submitted(self, now: float, row: int, cores: float, most: float) -> None:
        _, start, end, _ = self.world["jobs"][row]
        while cores > 0.0:
            self.parts += 1
            length = (end - max(start, self.world["start"])) / self.world["unit"]
            part = Job(-self.parts, row + 1, length, self.arrived)
            part.cpus, self.arrived, cores = min(cores, most), self.arrived + 1, cores - most
            self.waiting.append(part)

    def started(self, now: float, worker: int) -> None:
        self.away[worker] -= 1
        self.starting -= 1
        self.others.append((now, "workers_joined", worker))

    def follow(self, now: float) -> None:
        """Start and stop workers of the classes that follow the queue."""
        for worker in range(len(self.classes)):
            if self.away[worker] or self.on[worker]:
                self.idle.pop(worker, None)
            else:
                self.idle.setdefault(worker, now)
        for number, group in self.followed():
            if not group["joins"] <= now < group["leaves"]:
                continue
            own = self.workers_of(number)
            fit = [job for job in self.waiting if all(a >= b for a, b in zip(group["has"], self.needs(job), strict=True))]
            off = [worker for worker in own if worker in self.off]
            for worker in off[: max(0, len(fit) - self.starting)] if now + group["delay"] < group["leaves"] else []:
                self.off.discard(worker)
                self.starting += 1
                self.schedule(now + group["delay"], "started", worker)
            while len(own) - len(self.off & {*own}) > group["least"] and (idle := [one for one in own if one in self.idle]):
                first = min(idle, key=lambda worker: (self.idle[worker], worker))
                if self.idle[first] + group["idle"] > now:
                    self.schedule(self.idle[first] + group["idle"], "looked")
                    break
                self.off.add(first)
                self.away[first] += 1
                del self.idle[first]
                self.others.append((now, "workers_left", first))

    def needs(self, job: Job) -> tuple[float, ...]:
        return (job.cpus, 0.0, 0.0) if job.is_load else self.world["needs"][job.agent]

    def joins(self, now: float, worker: int) -> None:
        self.away[worker] -= 1

    def returned(self, now: float, worker: int) -> None:
        self.away[worker] -= 1

    def leaves(self, now: float, worker: int) -> None:
        self.away[worker] += 1
        self.stop(now, worker, None, 0.0)

    def preempted(self, now: float, worker: int, fault: dict[str, Any]) -> None:
        self.away[worker] += 1
        if fault["notice"]:
            self.schedule(now + fault["notice"], "warned", worker, fault)
        else:
            self.warned(now, worker, fault)

    def warned(self, now: float, worker: int, fault: dict[str, Any]) -> None:
        self.stop(now, worker, fault["checkpoint"], fault["notice"])
        if fault["duration"] is not None:
            self.schedule(now + fault["duration"], "returned", worker)

    def worked(self, time: float) -> tuple[float, float]:
        """Give the work that is done and that which is saved after a time at speed 1, by walking from save to save."""
        saves = self.world["saves"]
        if saves is None:
            return time, 0.0
        done = saved = 0.0
        while time > saves["every"]:
            time, done = time - saves["every"], done + saves["every"]
            if time < saves["cost"]:
                return done, saved
            time, saved = time - saves["cost"], done
        return done + time, saved

    def stop(self, now: float, worker: int, checkpoint: float | None, notice: float) -> None:
        jobs, self.on[worker], group = self.on[worker], [], self.classes[worker]
        for job in jobs:
            if job.is_copy:
                job.turn, job.other.other = job.turn + 1, None
                continue
            time = max(0.0, now - job.begun - group["startup"]) * group["speed"]
            cost = self.world["saves"]["cost"] if self.world["saves"] else 0.0
            done, saved = self.worked(time)
            if checkpoint is not None:
                job.work = max(0.0, job.work - done) + checkpoint
            elif notice and cost / group["speed"] <= notice:
                job.work = max(0.0, job.work - max(saved, self.worked(max(0.0, time - cost))[0]))
            elif self.world["saves"]:
                job.work -= saved
            else:
                job.work = job.length if job.is_load else self.world["lengths"][job.agent]
            if job.is_load:
                self.others.append((now, "job_left", job.index, worker))
            job.worker, job.turn = -1, job.turn + 1
            self.waiting.append(job)

    def ended(self, now: float, job: Job, turn: int) -> None:
        if job.turn != turn:
            return
        if job.is_load:
            self.others.append((now, "job_left", job.index, job.worker))
            self.on[job.worker].remove(job)
            job.turn += 1
            return
        self.lasted.append(now - job.begun)
        for one in (job, job.other):
            if one is not None:
                (self.waiting if one.worker < 0 else self.on[one.worker]).remove(one)
                one.turn += 1
        self.queue(job.agent)

    def looked(self, now: float) -> None:
        """Copies are made before placements."""

    def limit(self) -> float:
        copies = self.world["copies"]
        if copies is None or len(self.lasted) < 1 / (1 - copies["quantile"]) - 1e-6:
            return math.inf
        return copies["after"] * float(np.quantile(self.lasted, copies["quantile"]))

    def alone(self) -> list[Job]:
        """List what runs and has no copy."""
        found = [job for jobs in self.on for job in jobs if not (job.is_copy or job.is_load or job.other)]
        return sorted(found, key=lambda job: (job.begun, job.agent, job.index))

    def copy(self, now: float) -> None:
        for job in self.alone():
            if job.begun + self.limit() <= now:
                job.other = Job(job.agent, job.index, self.world["lengths"][job.agent], self.arrived)
                job.other.is_copy, job.other.other, self.arrived = True, job, self.arrived + 1
                self.waiting.append(job.other)

    def free(self, worker: int) -> list[float]:
        used = [self.needs(job) for job in self.on[worker]]
        return [has - sum(need[part] for need in used) for part, has in enumerate(self.classes[worker]["has"])]

    def share(self, job: Job) -> float:
        agent = job.agent
        if job.is_load:
            return 0.0
        whole = [sum(group["has"][part] for group in self.classes) for part in range(3)]
        need = self.world["needs"][agent]
        largest = max(part / all_ for part, all_ in zip(need, whole, strict=True) if part > 0)
        return largest * sum(job.agent == agent for jobs in self.on for job in jobs)

    def rank(self, job: Job) -> tuple[float, int]:
        if self.world["rule"] == "fair_share":
            return self.share(job), job.number
        ranked = self.world["rule"] == "priority" and not job.is_load
        return (-self.world["priorities"][job.agent] if ranked else 0.0), job.number

    def place(self, now: float) -> None:
        self.copy(now)
        self.serve(now)
        self.follow(now)
        if self.limit() < math.inf and (alone := self.alone()):
            self.schedule(alone[0].begun + self.limit(), "looked")

    def serve(self, now: float) -> None:
        while True:
            for job in sorted(self.waiting, key=self.rank):
                need = self.needs(job)
                fitting = [
                    worker
                    for worker, away in enumerate(self.away)
                    if not away and all(a >= b for a, b in zip(self.free(worker), need, strict=True))
                ]
                if fitting:
                    break
            else:
                return
            worker = min(fitting, key=lambda one: (-self.classes[one]["speed"], one))
            group = self.classes[worker]
            self.waiting.remove(job)
            self.on[worker].append(job)
            job.worker, job.begun, job.turn = worker, now, job.turn + 1
            if job.is_load:
                self.others.append((now, "job_placed", job.index, worker))
            else:
                self.placed.append((now, job.agent, job.index, worker, job.is_copy))
            saves, pauses = self.world["saves"], 0.0
            if saves is not None:
                left = job.work
                while left > saves["every"]:
                    left, pauses = left - saves["every"], pauses + saves["cost"]
            self.schedule(now + group["startup"] + (job.work + pauses) / group["speed"], "ended", job, job.turn)
