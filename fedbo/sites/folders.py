"""The folder of a site, and the folder in which a coordinator keeps the keys, certificates and approvals of a study."""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedbo.actors.storage import atomic
from fedbo.actors.storage.sealed import seal, unseal
from fedbo.settings import arguments
from fedbo.settings.shown import quoted, shown
from fedbo.sites.audit import AuditLog
from fedbo.sites.certificates import AUTHORITY, create_authority, server_context
from fedbo.sites.documents import Approval, Roster, RosterEntry, ServerTrust, SiteRequest, https_address, study_digest
from fedbo.sites.errors import SitesError
from fedbo.sites.keys import PrivateKey, PublicKey
from fedbo.sites.policy import TEMPLATE, SitePolicy, admit_study
from fedbo.study.paths import PRIVATE, locked, make_folder

SITE_KEY, REQUEST, POLICY, APPROVAL = "site.key", "request.json", "policy.toml", "approval.json"
AUDIT = "audit.jsonl"
COORDINATOR_KEY, SERVICE, ROSTER = "coordinator.key", "service.json", "roster.json"
CONNECTIONS = ("tls", "proxy")


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """A site's folder: `site.key`, `policy.toml`, `request.json`, and `runs/` with one folder for each study."""

    path: Path

    @classmethod
    def create(cls, path: Path, name: str) -> SiteFolder:
        """Create a folder with a new key, a request and a policy that admits no study yet; SitesError where it has a key."""
        make_folder(path, PRIVATE)
        key = PrivateKey.create(path / SITE_KEY)
        atomic.write(path / POLICY, lambda file: file.write(TEMPLATE.encode()), new=True)
        SiteRequest.make(name, key).write(path / REQUEST)
        return cls(path)

    @classmethod
    def of(cls, approval: Path, folder: Path | None = None) -> SiteFolder:
        """Return the folder of a site, by default the one that its approval lies in; SitesError when it is no site's."""
        path = approval.parent if folder is None else folder
        if not (path / SITE_KEY).is_file():
            words = "put the approval into the folder that `fedbo site new` made, or name that folder with --site"
            raise SitesError(f"'{path}': is not the folder of a site; {words}")
        return cls(path)

    def key(self, approval: Approval) -> PrivateKey:
        """Read the key that an approval is of, the first one or one of a rotation; SitesError when the site has none such."""
        own = []
        for path in (self.path / SITE_KEY, *sorted(self.path.glob("site-*.key"))):
            key = PrivateKey.read(path)
            if key.public.hex == approval.key:
                return key
            own.append(key.public.fingerprint)
        words = f"of {PublicKey.of_hex(approval.key).fingerprint}, but this site has {', '.join(own)}"
        raise SitesError(f"the approval is of another key ({words}); send request.json to the coordinator again")

    def rotate(self, approval: Approval) -> SiteRequest:
        """Draw another key, and write the request to replace the one of an approval, which stays valid until then."""
        earlier = self.key(approval)
        number = 2 + sum(1 for _ in self.path.glob("site-*.key"))
        request = SiteRequest.make(approval.name, PrivateKey.create(self.path / f"site-{number}.key"), earlier)
        request.write(self.path / REQUEST)
        return request

    def accept(self, approval: Approval, fingerprint: str) -> Path:
        """Keep an approval as `approval.json`, and add its study to the policy; return the file of the approval.

        SitesError unless `fingerprint` is that of the study, as the coordinator has read it out, and the approval of this site.
        """
        self.key(approval)
        if fingerprint.strip().lower() != approval.fingerprint:
            words = "compare it again; if they differ, this is not the coordinator's approval"
            raise SitesError(f"fingerprint = '{shown(fingerprint)[:80]}': the study has {approval.fingerprint}; {words}")
        if approval.fingerprint not in self.policy().studies:
            admit_study(self.path / POLICY, approval.fingerprint)
        approval.write(self.path / APPROVAL)
        return self.path / APPROVAL

    def policy(self) -> SitePolicy:
        """Read the site's policy."""
        return SitePolicy.read(self.path / POLICY)

    def run_folder(self, approval: Approval) -> Path:
        """Return the folder of a study's run at this site: outbox, sequence, log, checkpoint, observations."""
        return self.path / "runs" / approval.digest.hex()[:16]

    def audit(self, approval: Approval) -> AuditLog:
        """Open the audit log of a study at this site."""
        make_folder(self.run_folder(approval), PRIVATE)
        return AuditLog(self.run_folder(approval) / AUDIT)


class ServiceFolder:
    """The coordinator's folder of a study, which `fedbo serve` reads.

    It holds `coordinator.key`, `service.json`, `roster.json`, certificates, `approvals/` and `audit.jsonl`.

    - `key`: the coordinator's key; `digest`: the digest of the study `(32,)`; `nonce`: its random part.
    - `terms`: the public terms, as each approval has them.
    - `endpoint`: the address at which sites reach the server.
    - `connection`: "tls" when the server ends TLS itself, "proxy" when something in front of it does.
    """

    def __init__(self, path: Path) -> None:
        """Open a folder; SitesError when it is missing or incomplete."""
        try:
            known = unseal(path / SERVICE)
        except FileNotFoundError:
            words = "is not the folder of a served study; approve a first site with `fedbo approve REQUEST --study STUDY`"
            raise SitesError(f"'{path}': {words}") from None
        self.path, self.key = path, PrivateKey.read(path / COORDINATOR_KEY)
        self.terms: dict[str, Any] = known["terms"]
        self.nonce, self.endpoint = str(known["nonce"]), str(known["endpoint"])
        self.connection, self._certificate = str(known["connection"]), str(known["certificate"])
        self.digest = study_digest(self.terms, self.key.public, self.nonce)
        self._audit: AuditLog | None = None
        self._roster: tuple[tuple[int, int, int], Roster] | None = None

    @classmethod
    def of_study(cls, study: Path) -> Path:
        """Return where the folder of a study file is by default: `STUDY.sites`, beside it."""
        return study.with_suffix(".sites")

    @classmethod
    def create(
        cls, path: Path, terms: Mapping[str, Any], endpoint: str, connection: str = "tls", certificate: str = "own",
        names: Iterable[str] = (),
    ) -> ServiceFolder:  # fmt: skip
        """Create the folder of a study with these public terms; ArgumentError for an invalid address, SitesError if it exists.

        `certificate` is "own" for a certificate of the coordinator's own authority, for the host of the address and further
        `names`, and "public" for one that its user puts there.
        """
        arguments.one_of("connection", connection, CONNECTIONS)
        arguments.one_of("certificate", certificate, ("own", "public"))
        try:
            endpoint = https_address(endpoint)
        except ValueError as error:
            raise arguments.wrong("endpoint", endpoint, str(error)) from None
        make_folder(path, PRIVATE)
        with locked(path):
            if (path / SERVICE).exists():
                raise SitesError(f"'{path}': there is a served study already; use another folder")
            if not (path / COORDINATOR_KEY).exists():  # of a creation that was cut short
                PrivateKey.create(path / COORDINATOR_KEY)
            if certificate == "own":
                create_authority(path, [str(urlsplit(endpoint).hostname), *names])
            known = {"terms": dict(terms), "nonce": secrets.token_hex(32), "endpoint": endpoint}
            # Last, so that a folder with this file is complete.
            atomic.write_text(path / SERVICE, seal({**known, "connection": connection, "certificate": certificate}, indent=2))
        return cls(path)

    def check_terms(self, terms: Mapping[str, Any]) -> None:
        """Check that a study still has the public terms of this folder; SitesError otherwise."""
        if json.loads(json.dumps(terms)) != self.terms:
            words = "sites were approved for other terms; restore the study file, or approve all sites again in another folder"
            raise SitesError(f"'{self.path}': the study has changed: {words}")

    def roster(self) -> Roster:
        """Return the roster, read again when its file has changed, so that approvals and revocations count at once.

        Each change is recorded in the audit log, if that is open.
        """
        path = self.path / ROSTER
        if not path.exists():
            return Roster.signed(self.key, study=self.digest.hex(), coordinator=self.key.public.hex, number=0)
        found = path.stat()
        state = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._roster is None or self._roster[0] != state:
            roster = Roster.read(path)
            if (roster.study, roster.coordinator) != (self.digest.hex(), self.key.public.hex):
                raise SitesError(f"'{path}': is the roster of another study; restore the file")
            self._roster = (state, roster)
            if self._audit is not None:
                entries = [entry.model_dump() for entry in roster.entries]
                self._audit.record("roster", roster=roster.number, entries=entries)
        return self._roster[1]

    def approve(self, request: SiteRequest, agent: int | None = None) -> Approval:
        """Enter a site into the roster, and return its approval, which is written to `approvals/` too.

        `agent` is by default the number of the key that the request replaces, or the lowest one that was never given out. A
        request that was approved before gets the same approval. SitesError when the request cannot be approved.
        """
        with locked(self.path):
            roster = self.roster()
            entry = roster.entry_of(request.signer)
            if entry is None:
                entries, number = self._entered(roster, request, agent)
                entry = RosterEntry(agent=number, name=request.name, key=request.key)
                self._write(roster, (*entries, entry))
            elif entry.state == "revoked":
                raise SitesError(f"the key of '{entry.name}' was revoked; make a new one: fedbo site new")
            elif agent not in (None, entry.agent):
                raise SitesError(f"'{entry.name}' was approved as agent {entry.agent} already; leave --agent out")
            approval = self._approval(entry)
            approval.write(self.path / "approvals" / f"{entry.name}.json")
        return approval

    def revoke(self, agent: int) -> RosterEntry:
        """Revoke the active key of an agent, and return its entry; SitesError when it has none."""
        with locked(self.path):
            roster = self.roster()
            found = [entry for entry in roster.entries if entry.agent == agent and entry.state == "active"]
            if not found:
                active = [str(entry.agent) for entry in roster.entries if entry.state == "active"]
                raise SitesError(f"agent {agent} has no active key; active are: {', '.join(active) or 'none'}")
            self._write(roster, _revoked(roster, found[0].key))
        return found[0]

    def server_context(self) -> ssl.SSLContext | None:
        """Return the server's TLS context; None behind a proxy that ends TLS."""
        return None if self.connection == "proxy" else server_context(self.path)

    def audit(self) -> AuditLog:
        """Open the coordinator's audit log, which records changes of the roster from now on; SitesError when it is open."""
        self._audit, self._roster = AuditLog(self.path / AUDIT), None
        return self._audit

    def _entered(self, roster: Roster, request: SiteRequest, agent: int | None) -> tuple[tuple[RosterEntry, ...], int]:
        """Return the entries before a new key is entered, and the number of its agent."""
        if request.replaces is not None:
            earlier = roster.entry_of(PublicKey.of_hex(request.replaces))
            if earlier is None or earlier.state == "revoked" or agent not in (None, earlier.agent):
                raise SitesError("the request replaces a key that is not active here; check that it is of this study")
            return _revoked(roster, earlier.key), earlier.agent
        agents = int(self.terms["agents"])
        active = {entry.agent: entry.name for entry in roster.entries if entry.state == "active"}
        if request.name in active.values():
            raise SitesError(f"another key of '{request.name}' is active; rotate it, or run: fedbo revoke")
        if agent is None:
            known = {entry.agent for entry in roster.entries}
            agent = next((number for number in range(agents) if number not in known), None)
            if agent is None:
                raise SitesError(f"all {agents} agents have had a site; name the one to replace: --agent N")
        if not 0 <= agent < agents:
            raise SitesError(f"agent = {agent}: must be from 0 to {agents - 1}")
        if agent in active:
            words = f"run: fedbo revoke {agent} --service {quoted(self.path)}"
            raise SitesError(f"agent {agent} is the site '{active[agent]}'; to replace it, first {words}")
        return roster.entries, agent

    def _write(self, roster: Roster, entries: tuple[RosterEntry, ...]) -> None:
        fields = {"study": roster.study, "coordinator": roster.coordinator, "number": roster.number + 1}
        Roster.signed(self.key, **fields, entries=entries).write(self.path / ROSTER)

    def _approval(self, entry: RosterEntry) -> Approval:
        pinned = self._certificate == "own"
        authority = (self.path / AUTHORITY).read_text() if pinned else None
        return Approval.signed(
            self.key,
            study=str(self.terms["study"]),
            terms=self.terms,
            nonce=self.nonce,
            agent=entry.agent,
            name=entry.name,
            key=entry.key,
            endpoint=self.endpoint,
            trust=ServerTrust(certificate="pinned" if pinned else "public", authority=authority),
            coordinator=self.key.public.hex,
        )


def _revoked(roster: Roster, key: str) -> tuple[RosterEntry, ...]:
    """Return the entries of a roster after a key was revoked."""
    return tuple(each.model_copy(update={"state": "revoked"}) if each.key == key else each for each in roster.entries)
