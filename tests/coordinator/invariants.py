"""The laws of all studies, over runs of a core without files, and what else must hold of the state that a run leaves."""

from __future__ import annotations

from small_runs import Ran, Setting

from tests.random_studies.invariants import violations_of


def check(setting: Setting) -> Ran:
    """Run a setting; check its tables by all laws, and its state by its tables."""
    ran = setting.run()
    assert violations_of(tables := ran.tables(setting)) == []
    for agent in (agents := ran.hosts.host.agents):
        record, good = ran.core.state.agents[agent], sum(row["agent"] == agent and row["error"] is None for row in tables.rows)
        assert agents[agent].committed.t_n == good
        assert record.needs_restore or record.t_n == good  # it forgot, but has not begun again
    closed = len(ran.of("round"))
    assert ran.core.state.rounds.number == closed or setting.exchange.mode == "immediate"
    if setting.exchange.selection.idles and not tables.ends_early:
        over = {record.agent for record in ran.records if record.kind == "done" or record.permanent}
        assert not ran.core.state.rounds.active & {*ran.core.rules.problem.targets} - over
    return ran


def events_of(ran: Ran) -> set[tuple[str, str]]:
    """Return the kinds of events that occurred in a run, with what tells them apart."""
    found = set()
    for record in ran.records:
        word = record.state or record.direction or ("again" if record.again else "")
        if record.permanent:
            word = "for good"
        elif record.kind == "arrived":
            word = "stale" if record.staleness else ""
        elif record.kind == "rejected":
            word = record.reason if record.answer is None else "duplicate answer"
            said = (record.message or "").replace("too large", "not finite")  # a flipped bit makes either
            word += next((f" {words}" for words in ("not finite", "payload is") if words in said), "")
        found.add((record.kind, word))
    return found
