"""Requests, rosters and approvals: signed by the right key, whole, of bounded size, and nothing that was not checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbo.sites.documents import (
    Approval,
    Roster,
    RosterEntry,
    ServerTrust,
    SignedDocument,
    SiteRequest,
    canonical,
    study_digest,
)
from fedbo.sites.errors import DocumentError, SignatureError, SitesError
from fedbo.sites.keys import PrivateKey

SITE, COORDINATOR, STRANGER = PrivateKey.drawn(), PrivateKey.drawn(), PrivateKey.drawn()
TERMS = {"study": "vaccine", "agents": 3, "document": {"budget": {"iterations": 4}, "x": [0.1, 1e-300, None, True, "ä"]}}


def request() -> SiteRequest:
    return SiteRequest.make("north", SITE)


def rotation() -> SiteRequest:
    return SiteRequest.make("north", SITE, PrivateKey.drawn())


def roster() -> Roster:
    entries = (RosterEntry(agent=0, name="north", key=SITE.public.hex),)
    return Roster.signed(COORDINATOR, study="ab" * 32, coordinator=COORDINATOR.public.hex, number=1, entries=entries)


def approval(**changed: Any) -> Approval:
    fields: dict[str, Any] = {
        "study": "vaccine",
        "terms": TERMS,
        "nonce": "cd" * 32,
        "agent": 0,
        "name": "north",
        "key": SITE.public.hex,
        "endpoint": "https://localhost:7443",
        "trust": ServerTrust(certificate="public"),
        "coordinator": COORDINATOR.public.hex,
    }
    return Approval.signed(COORDINATOR, **fields | changed)


DOCUMENTS = {"request": request, "rotation": rotation, "roster": roster, "approval": approval}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_the_same_after_it_was_written_and_read(name: str, tmp_path: Path) -> None:
    document = DOCUMENTS[name]()
    document.write(tmp_path / "document.json")
    again = type(document).read(tmp_path / "document.json")
    assert again == document and again.data() == document.data()
    assert "PRIVATE" not in document.data().decode()


def leaves(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return (
        [place] if not isinstance(value, dict | list) else [each for key, one in inner for each in leaves(one, (*place, key))]
    )


def changed(value: Any) -> Any:
    """Return another value of the same type, as likely to be accepted as possible."""
    if isinstance(value, str) and value:
        return ("0" if value[0] != "0" else "1") + value[1:]
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int | float) else "x"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_field_of_a_document_can_be_changed_added_or_removed(name: str) -> None:
    document = DOCUMENTS[name]()
    fields = json.loads(document.data())
    for place in leaves(fields):
        other = json.loads(document.data())
        inner = other
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = changed(inner[place[-1]])
        with pytest.raises(SitesError):
            type(document).parse(json.dumps(other).encode())
    for key in fields:
        # A field without a value may be left out: the document is the same one.
        if fields[key] is not None:
            with pytest.raises(SitesError):
                type(document).parse(json.dumps({**{k: v for k, v in fields.items() if k != key}}).encode())
    with pytest.raises(DocumentError, match="Extra inputs are not permitted"):
        type(document).parse(json.dumps({**fields, "more": 1}).encode())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_stranger_cannot_sign_for_another(name: str) -> None:
    document = DOCUMENTS[name]()
    forged = document.model_copy(update={"signature": STRANGER.sign(document.signed_bytes()).hex()})
    with pytest.raises(SignatureError, match="was changed after it was signed"):
        type(document).parse(forged.data())


def test_a_document_passes_for_no_other_kind_or_version() -> None:
    fields = json.loads(request().data())
    for key, value, match in (
        ("fedbo", "roster", "is not a fedbo request"),
        ("version", 2, "has version 2, but this fedbo reads 1"),
        ("version", None, "has version None"),
    ):
        with pytest.raises(DocumentError, match=match):
            SiteRequest.parse(json.dumps({**fields, key: value}).encode())
    # The kind is part of what is signed, so bytes that are signed as one kind verify as no other.
    assert request().signed_bytes().startswith(b'{"fedbo":"request"')


def test_random_damage_is_refused_in_one_line() -> None:
    rng, data = np.random.default_rng(0), approval().data()
    for _ in range(300):
        damaged = bytearray(data)
        place = int(rng.integers(len(damaged)))
        action = rng.integers(3)
        if action == 0:
            damaged[place] ^= 1 << int(rng.integers(8))
        elif action == 1:
            del damaged[place:]
        else:
            damaged[place:place] = rng.bytes(int(rng.integers(1, 5)))
        try:
            found = Approval.parse(bytes(damaged))
        except SitesError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
        else:  # white space, or the case of an escape
            assert found == approval()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a fedbo request"),
        (b"[" * 100_000, "is not JSON|at most 16,384 are allowed"),
        (b" " * 2**15, "at most 16,384 are allowed"),
        (b'{"fedbo":"request","fedbo":"request"}', "a key appears twice"),
        (b'{"fedbo":"request","version":1,"name":"a\\u001b[2J"}', "ask for the file again"),
        ("é".encode("latin-1"), "is not JSON"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_before_they_cost_anything(data: bytes, match: str) -> None:
    with pytest.raises(DocumentError, match=match) as told:
        SiteRequest.parse(data)
    assert "\x1b" not in str(told.value)


@pytest.mark.parametrize("depth", [200, 300, 900, 50_000])
def test_a_deep_document_is_refused(depth: int) -> None:
    fields = json.loads(approval().data()) | {"terms": "DEEP"}
    deep = '{"a":' * depth + "1" + "}" * depth
    with pytest.raises(SitesError):
        Approval.parse(json.dumps(fields).replace('"DEEP"', deep).encode())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_json_lacks_are_refused(number: str) -> None:
    fields = json.loads(approval().data()) | {"terms": {"study": "vaccine", "agents": "NUMBER"}}
    with pytest.raises(SitesError) as told:
        Approval.parse(json.dumps(fields).replace('"NUMBER"', number).encode())
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["", "../north", "a b", "a" * 81, ".hidden", "a/b", "a\n"])
def test_the_name_of_a_site_is_a_plain_word(name: str) -> None:
    with pytest.raises(DocumentError, match="name"):
        SiteRequest.make(name, SITE)


@pytest.mark.parametrize(
    "endpoint",
    ["http://a:1", "https://", "ftp://a", "https://a:99999", "https://u:p@a", "https://a?b", "https://a#b", "a\n", ""],
)
def test_an_endpoint_is_an_https_address(endpoint: str) -> None:
    with pytest.raises(DocumentError, match="endpoint: .*must be an address such as https"):
        approval(endpoint=endpoint)


def test_a_rotation_needs_the_signature_of_the_earlier_key() -> None:
    earlier = PrivateKey.drawn()
    sound = SiteRequest.make("north", SITE, earlier)
    assert SiteRequest.parse(sound.data()).replaces == earlier.public.hex
    # A thief of neither key names the key that it wants to replace, and signs with its own.
    claimed = SiteRequest.make("north", STRANGER, PrivateKey.drawn())
    stolen = claimed.model_copy(update={"replaces": earlier.public.hex})
    stolen = stolen.model_copy(update={"signature": STRANGER.sign(stolen.signed_bytes()).hex()})
    with pytest.raises(SignatureError, match="is not one of the key"):
        SiteRequest.parse(stolen.data())
    bare = stolen.model_copy(update={"replaced_signature": None})
    bare = bare.model_copy(update={"signature": STRANGER.sign(bare.signed_bytes()).hex()})
    with pytest.raises(SignatureError, match="without a signature of that key"):
        SiteRequest.parse(bare.data())


def test_a_roster_has_one_active_key_for_an_agent() -> None:
    keys = [PrivateKey.drawn().public.hex for _ in range(2)]
    first = RosterEntry(agent=0, name="north", key=keys[0])
    fields = {"study": "ab" * 32, "coordinator": COORDINATOR.public.hex, "number": 1}
    for entries in ((first, RosterEntry(agent=0, name="south", key=keys[1])), (first, first.model_copy(update={"agent": 1}))):
        with pytest.raises(DocumentError, match="two active keys, or a key is listed twice"):
            Roster.signed(COORDINATOR, **fields, entries=entries)
    revoked = first.model_copy(update={"state": "revoked"})
    both = Roster.signed(COORDINATOR, **fields, entries=(revoked, RosterEntry(agent=0, name="south", key=keys[1])))
    found = both.key_of(0)
    assert found is not None and found.hex == keys[1] and both.key_of(1) is None
    entry = both.entry_of(type(found).of_hex(keys[0]))
    assert entry is not None and entry.state == "revoked" and both.entry_of(STRANGER.public) is None


def test_the_digest_of_a_study_covers_terms_coordinator_and_nonce() -> None:
    base = approval()
    assert approval(agent=1, endpoint="https://other:1").digest == base.digest
    others = [approval(terms={**TERMS, "agents": 4}), approval(nonce="ce" * 32)]
    others += [approval(terms={**TERMS, "document": {**TERMS["document"], "x": [0.1, 1e-300, None, 1, "ä"]}})]
    digests = {base.digest, study_digest(TERMS, STRANGER.public, "cd" * 32), *(other.digest for other in others)}
    assert len(digests) == 5 and base.fingerprint.replace("-", "") != base.digest.hex()[:32]


def test_the_canonical_form_does_not_depend_on_order_and_refuses_what_json_lacks() -> None:
    assert canonical({"b": 1, "a": {"d": 2.5, "c": "é"}}) == b'{"a":{"c":"\\u00e9","d":2.5},"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant|Out of range"):
        canonical({"a": float("nan")})
    assert issubclass(Approval, SignedDocument)
