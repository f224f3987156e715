"""A study at sites over loopback: keys, approvals and policies as users make them, and threads for the sites."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbo.analysis.result import Result
from fedbo.sites.documents import SiteRequest
from fedbo.sites.folders import APPROVAL, POLICY, REQUEST, ServiceFolder, SiteFolder
from fedbo.sites.join import join_study
from fedbo.sites.serve import serve_study
from fedbo.sites.terms import asked_of, public_terms
from fedbo.sites.work import SiteSummary
from fedbo.study.study import Study


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class Arranged:
    """A study whose sites have been approved: the folder of the service, the port, and the approval of each site."""

    study: Study
    service: Path
    port: int
    approvals: list[Path] = field(default_factory=list)

    @property
    def listen(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serve(self) -> Result:
        """Serve the study in this thread until it has ended."""
        return serve_study(self.study, self.listen, ServiceFolder(self.service))


def arrange(study: Study, folder: Path, host: str = "127.0.0.1") -> Arranged:
    """Make keys, approvals and policies for all sites of a study."""
    port = free_port()
    service = ServiceFolder.create(folder / "service", public_terms(study), f"https://{host}:{port}")
    found = Arranged(study, service.path, port)
    for agent in range(study.federation().n_agents):
        site = SiteFolder.create(folder / f"site-{agent}", f"site-{agent}")
        approval = service.approve(SiteRequest.read(site.path / REQUEST))
        approval.write(site.path / APPROVAL)
        allowed = f'studies = ["{approval.fingerprint}"]\nevaluations = 10000\n'
        (site.path / POLICY).write_text(f'{allowed}share = "{asked_of(study).share}"\nreveals = "observations"\n')
        found.approvals.append(site.path / APPROVAL)
    return found


class SiteThreads:
    """All sites of a study in threads of this process; `finish` returns what they did, or raises the first error."""

    def __init__(self, arranged: Arranged, objectives: Sequence[Any], patience: float = 60.0) -> None:
        self.summaries: dict[int, SiteSummary] = {}
        self.errors: list[BaseException] = []

        def work(agent: int) -> None:
            try:
                self.summaries[agent] = join_study(arranged.approvals[agent], objectives[agent], patience=patience)
            except BaseException as error:  # noqa: BLE001 -- whatever ends a site is shown by the test
                self.errors.append(error)

        self._threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in range(len(objectives))]
        for thread in self._threads:
            thread.start()

    def finish(self) -> dict[int, SiteSummary]:
        """Wait for all sites."""
        for thread in self._threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]
        return self.summaries
