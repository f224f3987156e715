"""The laws of all studies, over runs of a core without files, and what else must hold of the state that a run leaves."""

from __future__ import annotations

from small_runs import Ran, Setting

from fedbo.testing.invariants import violations_of


def check(setting: Setting) -> Ran:
    """Run a setting; check its tables by all laws, and its state by its tables."""
    ran = setting.run()
    assert violations_of(tables := ran.tables(setting)) == []
    for agent, hosted in ran.hosts.host.agents.items():
        record, good = ran.core.state.agents[agent], sum(row["agent"] == agent and row["error"] is None for row in tables.rows)
        assert hosted.committed.t_n == good
        assert record.needs_restore or record.t_n == good  # it forgot, but has not begun again
    closed = len(ran.of("round"))
    assert ran.core.state.rounds.number == closed or not setting.exchange.is_synchronous
    if setting.exchange.selection.idles and not tables.ends_early:
        over = {record.agent for record in ran.records if record.kind == "done" or record.detail == "for good"}
        assert not ran.core.state.rounds.active & {*ran.core.rules.problem.targets} - over
    return ran


def events_of(ran: Ran) -> set[tuple[str, str]]:
    """Name the kinds of events that occurred in a run, with what tells them apart."""
    found = set()
    for record in ran.records:
        word = record.detail
        if record.kind == "arrived":
            word = "stale" if int(record.detail) else ""
        elif record.kind == "rejected":
            reasons = ("duplicate: this message", "duplicate: the agent", "stale", "not finite", "given up", "payload is")
            word = next((reason for reason in reasons if reason in record.detail), record.detail)
        elif record.kind in ("slowed", "late", "failed", "falsified", "missed"):
            word = ""
        elif record.kind == "lost":
            word = record.detail.partition(":")[0]  # the cause follows
        found.add((record.kind, word))
    return found
