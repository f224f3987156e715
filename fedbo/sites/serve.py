"""The coordinator of a study whose agents are at sites: one process, with snapshots, that continues where it was killed."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pyarrow.compute as pc

from fedbo.analysis.result import Result
from fedbo.execution.again import has_ended, run_again
from fedbo.execution.progress import Progress
from fedbo.settings.arguments import wrong
from fedbo.settings.interrupts import interrupts
from fedbo.sites.coordinator import StudyClock, sites_runner
from fedbo.sites.folders import ServiceFolder
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import asked_of, public_terms, sync_terms
from fedbo.study.study import Study

_POLL = 0.1  # seconds between two looks at whether all sites know that the study has ended
FAREWELL = 60.0  # seconds in which sites that are there ask again, and are told that the study has ended


def address_of(listen: str) -> tuple[str, int]:
    """Return the host and the port of "HOST:PORT"; ArgumentError for anything else."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 2**16:
        raise wrong("listen", listen, "write HOST:PORT, for example 0.0.0.0:7443")
    return host.strip("[]"), int(port)


def serve_study(
    study: Study,
    listen: str,
    service: ServiceFolder,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Serve a study to its sites until it has ended, and return its results.

    `out` is the folder of the run, by default `run` in the folder of the service; an interrupted run there is continued. Sites
    that have not heard of the end are told for a minute. Raises SitesError where the sites were approved for other terms,
    and the errors of `run_study`.
    """
    service.check_terms(public_terms(study))
    host, port = address_of(listen)
    clock, terms, directory = StudyClock(), sync_terms(study), out or service.path / "run"
    with closing(service.audit()) as audit:
        server = SyncServer(service.path, service.key, service.digest, terms, service.roster, audit, clock)
        server.start(host, port, service.server_context())
        try:
            if has_ended(directory, study):
                result = Result.open(directory)
                for agent, step in _counted(result).items():
                    server.end(agent, step)
            else:
                runner = sites_runner(server, clock, asked_of(study).lease)
                result = run_again(study, directory, (), progress, runner)
            _say_farewell(server, terms.agents)
            return result
        finally:
            server.close()


def _counted(result: Result) -> dict[int, int]:
    """Return the last step that counts of each agent of a run that has ended."""
    agents = range(result.study.federation().n_agents)
    events = result.events.filter(pc.equal(result.events["kind"], "finished"))
    last = events.group_by("agent").aggregate([("step", "max")]).to_pylist()
    return dict.fromkeys(agents, -1) | {row["agent"]: row["step_max"] for row in last}


def _say_farewell(server: SyncServer, agents: int) -> None:
    """Wait until every site knows that the study has ended, or does not ask any more."""
    until = time.monotonic() + FAREWELL
    with interrupts() as interrupted:
        while time.monotonic() < until and not interrupted() and not all(map(server.told, range(agents))):
            time.sleep(_POLL)
