"""A study of sites without an optimiser: keys, documents and terms, for tests of what travels."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fedbo.algorithms.base import Field
from fedbo.sites.audit import AuditLog, read_audit
from fedbo.sites.certificates import client_context, create_authority, server_context
from fedbo.sites.client import SiteClient
from fedbo.sites.documents import Approval, Roster, RosterEntry, ServerTrust
from fedbo.sites.keys import PrivateKey
from fedbo.sites.server import SyncServer
from fedbo.sites.terms import SyncTerms

UPLOAD = {"mean": Field((3,)), "count": Field((), "int64")}
DOWNLOAD = {"mean": Field((3,))}
TERMS = SyncTerms(agents=4, dim=2, upload=UPLOAD, download=DOWNLOAD, share="nothing", most_rows=16)
NONCE = "ab" * 32


@dataclass
class SyncStudy:
    """A coordinator with its folder, its certificate, and the keys of its agents."""

    folder: Path
    agents: int = 2
    terms: SyncTerms = TERMS
    states: dict[int, str] = field(default_factory=dict)
    key: PrivateKey = field(default_factory=PrivateKey.drawn)

    def __post_init__(self) -> None:
        self.keys = [PrivateKey.drawn() for _ in range(self.agents)]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority = create_authority(self.folder, ["localhost", "127.0.0.1"])
        self.digest = self.approval(0, 1).digest
        self._audit: AuditLog | None = None
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
            endpoint=f"https://127.0.0.1:{port}",
            trust=ServerTrust(certificate="pinned", authority=self.authority),
            coordinator=self.key.public.hex,
        )

    def roster(self) -> Roster:
        """Return the roster as it is now."""
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

    def client(self, agent: int, port: int, folder: Path | None = None, patience: float = 60.0) -> SiteClient:
        """Return the client of an agent's site, which is not started."""
        folder = folder or self.folder / f"site-{agent}"
        approval = self.approval(agent, port)
        audit = AuditLog(folder / "audit.jsonl")
        return SiteClient(folder, self.keys[agent], approval, self.terms, audit, client_context(approval.trust), patience)

    def refusals(self) -> list[str]:
        """Return the reasons of all refusals in the coordinator's audit log."""
        return [record["why"] for record in read_audit(self.folder / "audit.jsonl") if record["event"] == "refused"]
