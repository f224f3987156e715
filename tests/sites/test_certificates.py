"""TLS of a coordinator: whom a site accepts as its server, and whom it refuses."""

from __future__ import annotations

import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest

from fedbo.sites.certificates import authority_fingerprint, client_context, create_authority, issue, server_context
from fedbo.sites.documents import ServerTrust
from fedbo.sites.errors import DocumentError, SitesError

LONG = ".".join(["a-host-whose-name-is-long"] * 4)  # over the 64 characters of a common name


def said(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """Let a server and a client shake hands over a pair of sockets; return the version of TLS, or the client's error."""
    one, other = socket.socketpair()
    for each in (one, other):
        each.settimeout(10)

    def serve() -> None:
        try:
            with server.wrap_socket(one, server_side=True) as wrapped:
                wrapped.recv(1)
        except OSError:
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(other, server_hostname=name) as wrapped:
            wrapped.sendall(b"x")
            return str(wrapped.version())
    except ssl.SSLError as error:
        return error.reason or str(error)
    finally:
        other.close()
        thread.join()


def pinned(folder: Path, *names: str) -> ServerTrust:
    return ServerTrust(certificate="pinned", authority=create_authority(folder, names))


def test_a_site_accepts_the_server_of_its_approval_under_all_its_names(tmp_path: Path) -> None:
    trust = pinned(tmp_path, "localhost", "127.0.0.1", "::1", LONG)
    for name in ("localhost", "127.0.0.1", "::1", LONG):
        assert said(server_context(tmp_path), client_context(trust), name) == "TLSv1.3"
    assert said(server_context(tmp_path), client_context(trust), "example.org") == "CERTIFICATE_VERIFY_FAILED"
    for name in ("authority.key", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_site_refuses_a_server_of_another_authority(tmp_path: Path) -> None:
    trust = pinned(tmp_path / "own", "localhost")
    pinned(tmp_path / "other", "localhost")
    assert said(server_context(tmp_path / "other"), client_context(trust), "localhost") == "CERTIFICATE_VERIFY_FAILED"
    public = ServerTrust(certificate="public")
    assert said(server_context(tmp_path / "own"), client_context(public), "localhost") == "CERTIFICATE_VERIFY_FAILED"


def test_a_server_certificate_cannot_sign_another(tmp_path: Path) -> None:
    trust = pinned(tmp_path, "localhost")
    (tmp_path / "false").mkdir()
    for source, to in (("server.pem", "authority.pem"), ("server.key", "authority.key")):
        (tmp_path / "false" / to).write_bytes((tmp_path / source).read_bytes())
    issue(tmp_path / "false", ["localhost"])
    chain = (tmp_path / "false" / "server.pem").read_bytes() + (tmp_path / "server.pem").read_bytes()
    (tmp_path / "false" / "server.pem").write_bytes(chain)
    assert said(server_context(tmp_path / "false"), client_context(trust), "localhost") == "CERTIFICATE_VERIFY_FAILED"


def test_a_new_certificate_of_the_same_authority_is_accepted(tmp_path: Path) -> None:
    trust = pinned(tmp_path, "localhost")
    issue(tmp_path, ["localhost", "other.example"])
    assert said(server_context(tmp_path), client_context(trust), "other.example") == "TLSv1.3"


@pytest.mark.parametrize("side", ["server", "client"])
def test_tls_below_1_3_is_refused(side: str, tmp_path: Path) -> None:
    trust = pinned(tmp_path, "localhost")
    server, client = server_context(tmp_path), client_context(trust)
    lowered = server if side == "server" else client
    lowered.minimum_version, lowered.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    assert "VERSION" in said(server, client, "localhost")


def test_files_and_texts_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SitesError, match="the server's certificate cannot be used"):
        server_context(tmp_path)
    pinned(tmp_path / "one", "localhost")
    pinned(tmp_path / "two", "localhost")
    (tmp_path / "one" / "server.key").write_bytes((tmp_path / "two" / "server.key").read_bytes())
    with pytest.raises(SitesError, match="the server's certificate cannot be used"):
        server_context(tmp_path / "one")
    for text in ("", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(DocumentError, match="is not a certificate"):
            client_context(ServerTrust(certificate="pinned", authority=text))
    for names in ([], ["x"] * 101, ["höst"]):
        with pytest.raises(SitesError, match="names ="):
            create_authority(tmp_path / "names", names)


def test_an_authority_has_a_fingerprint(tmp_path: Path) -> None:
    first, second = pinned(tmp_path / "1", "localhost"), pinned(tmp_path / "2", "localhost")
    assert authority_fingerprint(first) != authority_fingerprint(second)
    assert authority_fingerprint(ServerTrust(certificate="public")) == "public"
