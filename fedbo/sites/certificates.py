"""TLS: a coordinator's own certificate authority, its server certificate, and the contexts of both sides.

With `connection = "tls"` the server shows a certificate of its own authority, which each approval pins, or a public one. With
"proxy" something in front of the server ends TLS, with a public certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from fedbo.sites.documents import ServerTrust

AUTHORITY, CERTIFICATE, KEY = "authority.pem", "server.pem", "server.key"


def create_authority(folder: Path, names: list[str]) -> str:
    """Write an authority and a server certificate for host names and addresses into a folder; return the authority as PEM."""
    raise NotImplementedError


def server_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a server with the certificate and the key in a folder; TLS 1.3 only."""
    raise NotImplementedError


def client_context(trust: ServerTrust) -> ssl.SSLContext:
    """Return the context of a site: it checks the server's name and its certificate; TLS 1.3 only."""
    raise NotImplementedError
