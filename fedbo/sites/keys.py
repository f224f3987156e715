"""Ed25519 keys of sites and coordinators, their files, and the fingerprints by which people compare them.

A private key never leaves the machine that drew it. Its file is readable by its owner only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedbo.actors.storage import atomic
from fedbo.objectives.base import LibraryMissingError
from fedbo.settings.shown import quoted
from fedbo.sites.errors import SignatureError, SitesError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_BYTES = 64
KEY_BYTES = 32
_GROUPS = 8  # of four hexadecimal digits: 128 bits, of which nobody finds a second preimage
_LIBRARIES = ("cryptography", "httpx", "uvicorn")


@cache
def require_libraries() -> None:
    """Raise LibraryMissingError unless the libraries of the extra `serve` are installed."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        words = f"keys and sites require {', '.join(missing)}"
        raise LibraryMissingError(f"{words}; install with: pip install {' '.join(missing)}")


def fingerprint_of(data: bytes) -> str:
    """Return the first 128 bits of the SHA-256 of some bytes as people read them: "ab12-…", eight groups of four digits."""
    digest = hashlib.sha256(data).hexdigest()
    return "-".join(digest[4 * group : 4 * group + 4] for group in range(_GROUPS))


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The public half of a key: `raw` are its 32 bytes. SignatureError when there are not 32."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise SignatureError(f"a public key has {KEY_BYTES} bytes, not {len(self.raw)}; copy the whole key")

    @classmethod
    def of_hex(cls, text: str) -> PublicKey:
        """Return the key of its hexadecimal form; SignatureError when it is none."""
        try:
            return cls(bytes.fromhex(text))
        except ValueError:
            raise SignatureError(f"a public key has {2 * KEY_BYTES} hexadecimal digits; copy the whole key") from None

    @property
    def hex(self) -> str:
        """Return the key as 64 hexadecimal digits."""
        return self.raw.hex()

    @property
    def fingerprint(self) -> str:
        """Return the form that people read to each other over the telephone."""
        return fingerprint_of(self.raw)

    def verify(self, data: bytes, signature: bytes) -> None:
        """Check that the owner of this key signed these bytes; SignatureError otherwise."""
        require_libraries()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except (InvalidSignature, ValueError):
            raise SignatureError(f"the signature is not one of the key {self.fingerprint} over these bytes") from None


class PrivateKey:
    """A private key, kept in a file that only its owner can read."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        """Return the fingerprint of the public half; the private one is never shown."""
        return f"<PrivateKey {self.public.fingerprint}>"

    @classmethod
    def drawn(cls) -> PrivateKey:
        """Draw a new key from the system's randomness."""
        require_libraries()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def create(cls, path: Path) -> PrivateKey:
        """Draw a new key and write it to a new file, PEM with mode 0600; SitesError where there is a file already."""
        key = cls.drawn()
        from cryptography.hazmat.primitives import serialization

        data = key._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        atomic.write(path, lambda file: file.write(data), new=True, mode=0o600)
        if path.read_bytes() != data:  # an existing file is left as it is
            raise SitesError(f"'{path}': there is a key already, which is kept; use another folder for a new key")
        return key

    @classmethod
    def read(cls, path: Path) -> PrivateKey:
        """Read the file of a key; SitesError where there is none, where it is damaged, or where others can read it."""
        require_libraries()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            readable, data = path.stat().st_mode & 0o077, path.read_bytes()
        except OSError as error:
            raise SitesError(f"'{path}': the key cannot be read ({error.strerror}); use the folder that has it") from None
        if readable:
            raise SitesError(f"'{path}': other users can read this key; run: chmod 600 {quoted(path)}")
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise SitesError(f"'{path}': is not an Ed25519 key as PEM without a password; restore the file")
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """Return the signature `(64,)` of some bytes."""
        return self._key.sign(data)
