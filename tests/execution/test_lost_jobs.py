"""Jobs of an actor pool whose call, or whose result, Ray loses without an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fedbo.actors.pool_worker import PoolWorker, as_job
from fedbo.execution import workers
from fedbo.execution.cluster import ClusterError
from fedbo.execution.workers import ActorPool


class Call(NamedTuple):
    """A call of an actor: what it returns once `time` is at least `at`, and a number that no other call has."""

    number: int
    at: float
    value: Any


class ActorDied(Exception):
    """A process has ended."""


class FakeRay:
    """A Ray of actors that take some seconds for each job, in a time of its own; calls of some numbers get lost."""

    def __init__(self, lost: Sequence[int]) -> None:
        self.time, self.calls, self.started, self.killed = 0.0, 0, 0, list[Any]()
        self.lost, self.exceptions = lost, SimpleNamespace(RayTaskError=ActorDied)

    def call(self, at: float, value: Any) -> Call:
        self.calls += 1
        return Call(self.calls, at, value)

    def wait(self, calls: Sequence[Call], num_returns: int = 1, timeout: float = 0.0) -> tuple[list[Call], list[Call]]:
        del num_returns
        self.time += timeout
        done = [call for call in calls if call.at <= self.time]
        return done, [call for call in calls if call not in done]

    def get(self, call: Call) -> Any:
        assert call.at <= self.time
        return call.value() if callable(call.value) else call.value

    def kill(self, actor: FakeActor) -> None:
        self.killed.append(actor)


class FakeActor:
    """An actor of `FakeRay`, which is at work from the call for a job that arrives to its end."""

    def __init__(self, fake: FakeRay, seconds: float) -> None:
        self.fake, self.seconds, self.until = fake, seconds, 0.0
        fake.started += 1
        self.at_work = SimpleNamespace(remote=lambda: fake.call(fake.time, lambda: fake.time < self.until))

    def work(self, job: str) -> Call:
        arrives = self.fake.calls + 1 not in self.fake.lost
        self.until = self.fake.time + self.seconds if arrives else 0.0
        return self.fake.call(self.until if arrives else float("inf"), job.upper())


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], FakeRay]]:
    """Return a function that runs jobs on two actors and returns their results with the Ray that ran them."""

    def carry_out(lost: Sequence[int], jobs: str = "abcd", seconds: float = 60.0, deaths: int = 3) -> tuple[list[str], FakeRay]:
        fake = FakeRay(lost)
        monkeypatch.setattr(workers, "ray", fake)
        monkeypatch.setattr(workers, "actor_losses", lambda: (ActorDied,))
        monkeypatch.setattr("time.monotonic", lambda: fake.time)
        pool = ActorPool(lambda: FakeActor(fake, seconds), 2, deaths)
        return list(pool.results(lambda actor, job: actor.work(job), jobs, lambda: False)), fake

    return carry_out


def test_a_lost_call_is_made_again_on_another_actor(results: Callable[..., tuple[list[str], FakeRay]]) -> None:
    done, fake = results([1])
    assert sorted(done) == ["A", "B", "C", "D"]
    assert fake.started == 3
    assert len(fake.killed) == 1


def test_a_job_may_take_long(results: Callable[..., tuple[list[str], FakeRay]]) -> None:
    done, fake = results([], seconds=10_000.0)
    assert sorted(done) == ["A", "B", "C", "D"]
    assert fake.started == 2


def test_a_call_that_is_lost_each_time_fails_the_job(results: Callable[..., tuple[list[str], FakeRay]]) -> None:
    with pytest.raises(ClusterError, match=r"^a: its process died 3 times"):
        results(range(1, 10_000), jobs="a")


def test_a_worker_is_at_work_during_a_job_only() -> None:
    class Worker(PoolWorker):
        @as_job
        def work(self, error: bool) -> bool:
            if error:
                raise ValueError
            return self.at_work()

    worker = Worker()
    assert not worker.at_work()
    assert worker.work(False)
    assert not worker.at_work()
    with pytest.raises(ValueError):
        worker.work(True)
    assert not worker.at_work()
