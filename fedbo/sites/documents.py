"""The signed documents by which a site joins a study: its request, the coordinator's roster, and the approval.

Each is a JSON file with its kind and version. A signature covers the canonical form of everything else in it. Reading one never
runs code, and checks its size, each field and its signatures before anything is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedbo.actors.storage import atomic
from fedbo.settings.shown import shown, unfit
from fedbo.sites.errors import DocumentError, SignatureError, SitesError
from fedbo.sites.keys import SIGNATURE_BYTES, PrivateKey, PublicKey, fingerprint_of

VERSION = 1
MOST_SITES = 2**16
LONGEST_NAME = 80  # characters of the name of a site or a study
_HEX = r"^[0-9a-f]+$"
T = TypeVar("T")

Hex32 = Annotated[str, Field(pattern=_HEX, min_length=64, max_length=64)]
SignatureHex = Annotated[str, Field(pattern=_HEX, min_length=2 * SIGNATURE_BYTES, max_length=2 * SIGNATURE_BYTES)]
SiteName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=LONGEST_NAME)]
AgentNumber = Annotated[int, Field(ge=0, lt=MOST_SITES)]


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON document that are signed: sorted keys, no spaces, ASCII. ValueError for NaN and infinity."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


class SignedDocument(BaseModel):
    """A document with a signature. `signer` is the key that must have signed it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
    kind: ClassVar[str]
    most_bytes: ClassVar[int]
    signature: SignatureHex

    @property
    def signer(self) -> PublicKey:
        """Return the key that signs documents of this kind."""
        raise NotImplementedError

    @classmethod
    def signed(cls, signer: PrivateKey, /, **fields: Any) -> Self:
        """Return a document with these fields, signed by `signer`; DocumentError where a field is invalid."""
        draft = _checked(lambda: cls(signature="0" * 2 * SIGNATURE_BYTES, **fields), cls.kind)
        document = draft.model_copy(update={"signature": signer.sign(draft.signed_bytes()).hex()})
        document.check()
        return document

    @classmethod
    def parse(cls, data: bytes, where: str = "") -> Self:
        """Read and check a document of anybody; DocumentError or SignatureError where it is not as its format demands."""
        name = where or f"the {cls.kind}"
        if len(data) > cls.most_bytes:
            raise DocumentError(f"{name}: has {len(data):,} bytes, but at most {cls.most_bytes:,} are allowed")
        fields = _fields(data, name, cls.kind)
        document = _checked(lambda: cls(**fields), name)
        try:
            document.check()
        except SitesError:
            raise
        except (ValueError, RecursionError) as error:  # numbers that JSON lacks, or tables that are too deep to be written
            raise DocumentError(f"{name}: {shown(str(error))[:200]}; ask for the file again") from None
        return document

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file of a document; DocumentError or SignatureError where that is impossible."""
        try:
            with path.open("rb") as file:
                data = file.read(cls.most_bytes + 1)
        except OSError as error:
            raise DocumentError(f"'{path}': the {cls.kind} cannot be read ({error.strerror}); check the path") from None
        return cls.parse(data, f"'{path}'")

    def fields(self) -> dict[str, Any]:
        """Return the document as it is written."""
        return {"fedbo": self.kind, "version": VERSION, **self.model_dump(mode="json")}

    def data(self) -> bytes:
        """Return the bytes of its file."""
        return json.dumps(self.fields(), indent=2).encode() + b"\n"

    def write(self, path: Path) -> None:
        """Write the file; it appears complete or not at all."""
        atomic.write_bytes(path, self.data())

    def signed_bytes(self) -> bytes:
        """Return what the signature covers; the kind and the version are part of it, so no document passes for another."""
        return canonical({name: value for name, value in self.fields().items() if not name.endswith("signature")})

    def check(self) -> None:
        """Check the signatures; SignatureError where one is wrong."""
        try:
            self.signer.verify(self.signed_bytes(), bytes.fromhex(self.signature))
        except SignatureError:
            raise SignatureError(f"the {self.kind} was changed after it was signed; ask for the file again") from None


class SiteRequest(SignedDocument):
    """The request of a site to take part: its name and its public key, signed by that key.

    `replaces` is the site's earlier key when it rotates; `replaced_signature` is the signature of that key over the same bytes.
    """

    kind: ClassVar[str] = "request"
    most_bytes: ClassVar[int] = 2**14
    name: SiteName
    key: Hex32
    replaces: Hex32 | None = None
    replaced_signature: SignatureHex | None = None

    @classmethod
    def make(cls, name: str, key: PrivateKey, earlier: PrivateKey | None = None) -> SiteRequest:
        """Return the request of a site; with its `earlier` key, the request to replace that one."""
        if earlier is None:
            return cls.signed(key, name=name, key=key.public.hex)
        fields = {"name": name, "key": key.public.hex, "replaces": earlier.public.hex}
        draft = _checked(lambda: cls(signature="0" * 2 * SIGNATURE_BYTES, **fields), cls.kind)
        return cls.signed(key, **fields, replaced_signature=earlier.sign(draft.signed_bytes()).hex())

    @property
    def signer(self) -> PublicKey:
        """Return the site's key."""
        return PublicKey.of_hex(self.key)

    def check(self) -> None:
        """Check both signatures; SignatureError where one is wrong or missing."""
        super().check()
        if (self.replaces is None) != (self.replaced_signature is None):
            raise SignatureError("the request replaces a key without a signature of that key; run: fedbo site rotate")
        if self.replaces is not None and self.replaced_signature is not None:
            PublicKey.of_hex(self.replaces).verify(self.signed_bytes(), bytes.fromhex(self.replaced_signature))


class RosterEntry(BaseModel):
    """One key of a study: the agent that it speaks for, the site's name, and whether it still may."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    agent: AgentNumber
    name: SiteName
    key: Hex32
    state: Literal["active", "revoked"] = "active"


class Roster(SignedDocument):
    """The keys of a study, signed by the coordinator. `number` grows with each change, so an old copy can be told.

    An agent has at most one active key; a revoked key never becomes active again.
    """

    kind: ClassVar[str] = "roster"
    most_bytes: ClassVar[int] = 2**24
    study: Hex32
    coordinator: Hex32
    number: Annotated[int, Field(ge=0)]
    entries: tuple[RosterEntry, ...] = ()

    @field_validator("entries", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("entries")
    @classmethod
    def _unambiguous(cls, entries: tuple[RosterEntry, ...]) -> tuple[RosterEntry, ...]:
        active = [entry.agent for entry in entries if entry.state == "active"]
        if len({entry.key for entry in entries}) < len(entries) or len({*active}) < len(active):
            raise ValueError("an agent has two active keys, or a key is listed twice")
        return entries

    @property
    def signer(self) -> PublicKey:
        """Return the coordinator's key."""
        return PublicKey.of_hex(self.coordinator)

    def key_of(self, agent: int) -> PublicKey | None:
        """Return the active key of an agent; None when it has none."""
        found = [entry.key for entry in self.entries if entry.agent == agent and entry.state == "active"]
        return PublicKey.of_hex(found[0]) if found else None

    def entry_of(self, key: PublicKey) -> RosterEntry | None:
        """Return the entry of a key, also of a revoked one; None for a stranger's."""
        return next((entry for entry in self.entries if entry.key == key.hex), None)


class ServerTrust(BaseModel):
    """How a site recognises the server's certificate.

    - `certificate`: "pinned" trusts the coordinator's own `authority` (PEM) and nobody else, "public" the authorities of the
      site's system.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    certificate: Literal["pinned", "public"]
    authority: Annotated[str, Field(max_length=8000)] | None = None


class Approval(SignedDocument):
    """The coordinator's answer to a request: everything that a site needs to take part, signed by the coordinator.

    - `study`, `terms`, `nonce`: the study's name, its public terms, and random digits that identify this service of it.
    - `agent`, `key`: the number of the site's agent, and the site's public key.
    - `endpoint`, `trust`: the HTTPS address of the server, and how its certificate is recognised.
    """

    kind: ClassVar[str] = "approval"
    most_bytes: ClassVar[int] = 2**22
    study: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    terms: dict[str, Any]
    nonce: Hex32
    agent: AgentNumber
    name: SiteName
    key: Hex32
    endpoint: Annotated[str, Field(max_length=2000)]
    trust: ServerTrust
    coordinator: Hex32

    @field_validator("study")
    @classmethod
    def _printable(cls, value: str) -> str:
        if unfit(value) is not None:
            raise ValueError("must be one line of printable characters")
        return value

    @field_validator("endpoint")
    @classmethod
    def _is_https(cls, value: str) -> str:
        return https_address(value)

    @property
    def signer(self) -> PublicKey:
        """Return the coordinator's key."""
        return PublicKey.of_hex(self.coordinator)

    @property
    def digest(self) -> bytes:
        """Return the digest of the study `(32,)`, which every request and answer names."""
        return study_digest(self.terms, self.signer, self.nonce)

    @property
    def fingerprint(self) -> str:
        """Return the study's digest as people compare it; a site's policy lists it."""
        return fingerprint_of(self.digest)


def study_digest(terms: Mapping[str, Any], coordinator: PublicKey, nonce: str) -> bytes:
    """Return the digest `(32,)` of a study: its public terms, its coordinator's key, and the nonce of this service of it."""
    document = {"fedbo": "study", "terms": terms, "coordinator": coordinator.hex, "nonce": nonce}
    return hashlib.sha256(canonical(document)).digest()


def https_address(text: str) -> str:
    """Return an address "https://host:port/path" without its last slash; ValueError for anything else."""
    try:
        parts = urlsplit(text)
        fine = parts.scheme == "https" and parts.hostname and (parts.port or 443) > 0
    except ValueError:
        fine = False
    if not fine or unfit(text) or parts.query or parts.fragment or parts.username is not None:
        raise ValueError("must be an address such as https://coordinator.example:7443")
    return text.rstrip("/")


def _fields(data: bytes, name: str, kind: str) -> dict[str, Any]:
    """Return the fields of a document's JSON; DocumentError where it is no JSON object of this kind and version."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # Readers differ in which of two equal keys they take: one could read another value than the signer meant.
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("a key appears twice")
        return dict(pairs)

    try:
        fields = json.loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{name}: is not JSON ({shown(str(error))[:100]}); ask for the file again") from None
    if not isinstance(fields, dict) or fields.pop("fedbo", None) != kind:
        raise DocumentError(f"{name}: is not a fedbo {kind}; use the file that fedbo wrote")
    if (version := fields.pop("version", None)) != VERSION:
        raise DocumentError(f"{name}: has version {shown(repr(version))[:20]}, but this fedbo reads {VERSION}; update fedbo")
    return fields


def first_fault(error: ValidationError) -> str:
    """Return the first wrong field of a document of somebody else, and what it must be, shortened and escaped."""
    first = error.errors()[0]
    return shown(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")[:200]


def _checked(make: Callable[[], T], name: str) -> T:
    """Return what `make` makes; DocumentError with the first wrong field otherwise."""
    try:
        return make()
    except ValidationError as error:
        raise DocumentError(f"{name}: {first_fault(error)}; ask for the file again") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise DocumentError(f"{name}: {shown(str(error))[:200]}; ask for the file again") from None
