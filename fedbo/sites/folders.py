"""The folder of a site, and the folder in which a coordinator keeps the keys, certificates and approvals of a study."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbo.sites.audit import AuditLog
from fedbo.sites.documents import Approval, Roster, SiteRequest
from fedbo.sites.keys import PrivateKey
from fedbo.sites.policy import SitePolicy


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """A site's folder: `site.key`, `policy.toml`, `request.json`, `audit.jsonl`, and `runs/`, one folder for each study."""

    path: Path

    @classmethod
    def create(cls, path: Path, name: str) -> SiteFolder:
        """Create a folder with a new key, a request and a policy that admits no study yet."""
        raise NotImplementedError

    @classmethod
    def of(cls, approval: Path) -> SiteFolder:
        """Return the folder that an approval's file lies in; SitesError when it is no site's folder."""
        raise NotImplementedError

    def key(self, approval: Approval) -> PrivateKey:
        """Read the site's key; SitesError when the approval is of another key."""
        raise NotImplementedError

    def policy(self) -> SitePolicy:
        """Read the site's policy."""
        raise NotImplementedError

    def run_folder(self, approval: Approval) -> Path:
        """Return the folder of a study's run at this site: outbox, sequence, log, checkpoint, observations."""
        raise NotImplementedError

    def audit(self) -> AuditLog:
        """Open the site's audit log."""
        raise NotImplementedError


class ServiceFolder:
    """The coordinator's folder of a study: `coordinator.key`, `service.json`, `roster.json`, certificates, `approvals/`, `audit.jsonl`.

    `fedbo serve` reads it. `digest` is the digest of the study `(32,)`.
    """

    path: Path
    key: PrivateKey
    digest: bytes
    connection: str  # "tls" or "proxy"
    endpoint: str

    @classmethod
    def of_study(cls, study: Path) -> Path:
        """Return where the folder of a study file is: `STUDY.sites`, beside it."""
        return study.with_suffix(".sites")

    @classmethod
    def create(cls, path: Path, terms: Mapping[str, Any], endpoint: str, connection: str = "tls") -> ServiceFolder:
        """Create the folder of a study with these public terms and this address."""
        raise NotImplementedError

    @classmethod
    def open(cls, path: Path, terms: Mapping[str, Any]) -> ServiceFolder:
        """Open a folder; SitesError when it is missing, or was created for other public terms."""
        raise NotImplementedError

    def roster(self) -> Roster:
        """Return the roster, read again when its file has changed, so that approvals and revocations take effect at once."""
        raise NotImplementedError

    def approve(self, request: SiteRequest, agent: int | None = None) -> Approval:
        """Enter a site into the roster and return its approval; `agent` is the next free number by default."""
        raise NotImplementedError

    def revoke(self, agent: int) -> None:
        """Revoke the active key of an agent."""
        raise NotImplementedError

    def server_context(self) -> ssl.SSLContext | None:
        """Return the server's TLS context; None behind a proxy that ends TLS."""
        raise NotImplementedError

    def audit(self) -> AuditLog:
        """Open the coordinator's audit log."""
        raise NotImplementedError
