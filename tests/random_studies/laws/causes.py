"""Laws of causes: every event of a run follows from its models and faults, and happens at the right time."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

from fedbo.coordinator.environment.availability import Within
from fedbo.testing.contract import ContractBroken
from tests.random_studies.laws.messages import MessageCauses
from tests.random_studies.laws.rounds import RoundCauses
from tests.random_studies.laws.steps import StepCauses
from tests.random_studies.laws.troubles import Troubles
from tests.random_studies.run_tables import RunTables


def causes(run: RunTables) -> Iterator[str]:
    """Follow a run event by event; yield the first event without a cause."""
    if not has_causes(run):
        return
    try:
        _follow(run)
    except ContractBroken as broken:
        yield str(broken)
    except KeyError as missing:
        yield f"an event follows from one that is not there: {missing}"


def has_causes(run: RunTables) -> bool:
    """Return whether each agent of a run makes one evaluation after the other, in virtual time, from the start to the end."""
    task, environment = run.task, run.environment
    alone = not task.overlaps and task.policy.most_pending == 1 and task.stopping is None and environment.cluster is None
    stays = not any(isinstance(models.availability, Within) for models in environment.groups())
    return alone and stays and not environment.is_real_time


def _follow(run: RunTables) -> None:
    troubles, before = Troubles(run), 0.0
    rounds = RoundCauses(run, troubles)
    followers = (troubles, StepCauses(run, troubles), MessageCauses(run, troubles), rounds)
    for event in run.events:
        record = SimpleNamespace(**event)
        if record.time > before:
            rounds.rest(record.time)
        before = record.time
        for follower in followers:
            follower.line(record)
    for follower in followers:
        follower.end()
