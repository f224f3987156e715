"""TLS: a coordinator's own certificate authority, its server certificate, and the contexts of both sides.

With `connection = "tls"` the server shows a certificate of its own authority, which each approval pins, or a public one. With
"proxy" something in front of the server ends TLS.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedbo.actors.storage import atomic
from fedbo.sites.documents import ServerTrust
from fedbo.sites.errors import DocumentError, SitesError
from fedbo.sites.keys import fingerprint_of

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
CERTIFICATE, CERTIFICATE_KEY = "server.pem", "server.key"
_YEARS = 10
_MOST_NAMES = 100


def create_authority(folder: Path, names: Sequence[str]) -> str:
    """Write an authority and a server certificate of it into a folder; return the authority's certificate as PEM.

    `names` are host names and addresses at which sites reach the server. The names are entered as alternative names only: a
    common name could not be longer than 64 characters, and is ignored by clients.
    """
    from cryptography import x509

    key = _drawn_key()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedbo coordinator's authority")])
    usage = {"key_cert_sign": True, "crl_sign": True}
    builder = _builder(name, name, key, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    authority = _signed(builder.add_extension(_usage(usage), critical=True), key)
    _write_key(folder / AUTHORITY_KEY, key)
    atomic.write_bytes(folder / AUTHORITY, _pem(authority))
    issue(folder, names)
    return _pem(authority).decode()


def issue(folder: Path, names: Sequence[str]) -> None:
    """Write a new server certificate, and its key, of the authority in a folder; SitesError for names that are none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if not 0 < len(names) <= _MOST_NAMES:
        raise SitesError(f"names = {len(names)} names: a certificate needs 1 to {_MOST_NAMES} of them")
    authority = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
    authority_key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), password=None)
    assert isinstance(authority_key, EllipticCurvePrivateKey)
    key = _drawn_key()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "fedbo coordinator")])
    builder = _builder(subject, authority.subject, key, authority_key)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage({"digital_signature": True}), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    alternatives = x509.SubjectAlternativeName([_alternative(name) for name in dict.fromkeys(names)])
    certificate = _signed(builder.add_extension(alternatives, critical=False), authority_key)
    _write_key(folder / CERTIFICATE_KEY, key)
    atomic.write_bytes(folder / CERTIFICATE, _pem(certificate))


def server_context(folder: Path) -> ssl.SSLContext:
    """Return the context of a server with the certificate and the key in a folder: TLS 1.3 only.

    SitesError when the two are missing or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / CERTIFICATE_KEY)
    except (OSError, ssl.SSLError) as error:
        words = f"put the certificate chain into '{CERTIFICATE}' and its key into '{CERTIFICATE_KEY}'"
        raise SitesError(f"'{folder}': the server's certificate cannot be used ({error}); {words}") from None
    return context


def client_context(trust: ServerTrust) -> ssl.SSLContext:
    """Return the context of a site, which checks the server's certificate and its name; DocumentError for a wrong authority.

    A pinned authority is the only one that counts, with TLS 1.3. With a public certificate something else may end TLS in front
    of the server, so TLS 1.2 is accepted too; the system's authorities count, and those of `SSL_CERT_FILE`.
    """
    if trust.certificate == "public":
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(cadata=trust.authority or "")
    except (ssl.SSLError, ValueError):
        raise DocumentError("the approval's authority is not a certificate; ask for the approval again") from None
    return context


def authority_fingerprint(trust: ServerTrust) -> str:
    """Return the fingerprint of a pinned authority, "public" without one; DocumentError where it is no certificate."""
    if trust.certificate == "public" or trust.authority is None:
        return "public"
    try:
        return fingerprint_of(ssl.PEM_cert_to_DER_cert(trust.authority))
    except ValueError:
        raise DocumentError("the approval's authority is not a certificate; ask for the approval again") from None


def _drawn_key() -> EllipticCurvePrivateKey:
    # Not Ed25519: proxies and older TLS libraries read certificates of this curve everywhere.
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, issuer_key: EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # for sites whose clocks are late
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _usage(allowed: dict[str, bool]) -> x509.KeyUsage:
    from cryptography import x509

    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
        "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in every})


def _alternative(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise SitesError(f"names = '{name}': must be a host name in ASCII or an address") from None


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: EllipticCurvePrivateKey) -> None:
    from cryptography.hazmat.primitives import serialization

    data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    atomic.write(path, lambda file: file.write(data), mode=0o600)
