"""A study of sites without an optimiser: keys, documents and terms, for tests of what travels."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fedbo.algorithms.base import Field
from fedbo.sites.audit import AuditLog
from fedbo.sites.certificates import AUTHORITY, client_context, create_authority, server_context
from fedbo.sites.client import SiteClient
from fedbo.sites.documents import Approval, Roster, RosterEntry, ServerTrust
from fedbo.sites.errors import SitesError
from fedbo.sites.keys import PrivateKey
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import SyncTerms

UPLOAD = {"mean": Field((3,)), "count": Field((), "int64")}
DOWNLOAD = {"mean": Field((3,))}
TERMS = SyncTerms(agents=4, dim=2, upload=UPLOAD, download=DOWNLOAD, share="nothing", most_rows=16,
                  last_step=10**6, most_points=16, most_evaluations=10**7)  # fmt: skip
NONCE = "ab" * 32


@dataclass
class SyncStudy:
    """A coordinator with its folder, its certificate, and the keys of its agents.

    Another process that opens the same folder has the same study. `host` is where sites reach the server.
    """

    folder: Path
    agents: int = 2
    terms: SyncTerms = TERMS
    states: dict[int, str] = field(default_factory=dict)
    host: str = "127.0.0.1"
    broken: bool = False

    def __post_init__(self) -> None:
        self.key, *self.keys = [_key(self.folder / "keys" / f"{agent}.key") for agent in range(-1, self.agents)]
        if not (self.folder / AUTHORITY).exists():
            create_authority(self.folder, ["localhost", self.host])
        self.authority = (self.folder / AUTHORITY).read_text(encoding="ascii")
        self.digest = self.approval(0, 1).digest
        self._audit: AuditLog | None = None
        self._read, self._refused = 0, list[tuple[str, str]]()
        self._rosters: dict[tuple[str, ...], Roster] = {}

    def approval(self, agent: int, port: int) -> Approval:
        """Return the approval of an agent's site."""
        return Approval.signed(
            self.key,
            study="study",
            terms={"agents": self.agents},
            nonce=NONCE,
            agent=agent,
            name=f"site-{agent}",
            key=self.keys[agent].public.hex,
            endpoint=f"https://{self.host}:{port}",
            trust=ServerTrust(certificate="pinned", authority=self.authority),
            coordinator=self.key.public.hex,
        )

    def roster(self) -> Roster:
        """Return the roster as it is now."""
        if self.broken:
            raise SitesError("the roster is half written")
        states = tuple(self.states.get(agent, "active") for agent in range(self.agents))
        if states not in self._rosters:
            entries = tuple(
                RosterEntry(agent=agent, name=f"site-{agent}", key=self.keys[agent].public.hex, state=state)  # type: ignore[arg-type]
                for agent, state in enumerate(states)
            )
            self._rosters[states] = Roster.signed(
                self.key, study=self.digest.hex(), coordinator=self.key.public.hex, number=0, entries=entries
            )
        return self._rosters[states]

    def server(self) -> SyncServer:
        """Return a server of the study, which is not started."""
        self._audit = self._audit or AuditLog(self.folder / "audit.jsonl")
        return SyncServer(self.folder, self.key, self.digest, self.terms, self.roster, self._audit, lambda: 0.0)

    def server_context(self) -> ssl.SSLContext:
        """Return the context of the server."""
        return server_context(self.folder)

    def client(self, agent: int, port: int, patience: float = 60.0, audit: str = "audit.jsonl") -> SiteClient:
        """Return the client of an agent's site, which is not started."""
        folder, approval = self.folder / f"site-{agent}", self.approval(agent, port)
        context, log = client_context(approval.trust), AuditLog(folder / audit)
        return SiteClient(folder, self.keys[agent], approval, self.terms, log, context, patience)

    def refusals(self, port: int | None = None) -> list[str]:
        """Return the reasons of all refusals in the coordinator's audit log, or of those of a client's port."""
        with (self.folder / "audit.jsonl").open("rb") as file:
            file.seek(self._read)
            lines = file.read().split(b"\n")[:-1]
        self._read += sum(len(line) + 1 for line in lines)
        records = [json.loads(line) for line in lines]
        self._refused += [(str(record.get("peer")), record["why"]) for record in records if record["event"] == "refused"]
        return [why for peer, why in self._refused if port is None or peer.endswith(f":{port}")]


def _key(path: Path) -> PrivateKey:
    return PrivateKey.read(path) if path.exists() else PrivateKey.create(path)
