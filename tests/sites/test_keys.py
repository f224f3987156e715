"""Keys of sites: what they sign, how their files are kept, and how people compare them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedbo.sites.errors import SignatureError, SitesError
from fedbo.sites.keys import PrivateKey, PublicKey, fingerprint_of

# The first two tests of RFC 8032, section 7.1: the public key, the message and its signature.
RFC_8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]


@pytest.mark.parametrize(("key", "data", "signature"), RFC_8032)
def test_signatures_are_those_of_rfc_8032(key: str, data: str, signature: str) -> None:
    public = PublicKey.of_hex(key)
    public.verify(bytes.fromhex(data), bytes.fromhex(signature))
    for wrong in (bytes(64), b"", bytes.fromhex(signature)[:-1], bytes.fromhex(signature)[::-1]):
        with pytest.raises(SignatureError, match=f"is not one of the key {public.fingerprint}"):
            public.verify(bytes.fromhex(data), wrong)
    with pytest.raises(SignatureError, match="is not one of the key"):
        public.verify(bytes.fromhex(data) + b"x", bytes.fromhex(signature))


def test_a_key_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    key = PrivateKey.create(tmp_path / "site.key")
    again = PrivateKey.read(tmp_path / "site.key")
    assert again.public == key.public and stat.S_IMODE((tmp_path / "site.key").stat().st_mode) == 0o600
    key.public.verify(b"text", again.sign(b"text"))
    assert key.public.hex not in (tmp_path / "site.key").read_text() and "Private" in repr(key)
    assert repr(key).count(key.public.fingerprint) == 1


def test_openssl_reads_the_file_of_a_key(tmp_path: Path) -> None:
    key = PrivateKey.create(tmp_path / "site.key")
    command = ["openssl", "pkey", "-in", str(tmp_path / "site.key"), "-pubout", "-outform", "DER"]
    try:
        told = subprocess.run(command, capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl command here")
    assert told.stdout.endswith(key.public.raw)


def test_a_key_is_never_written_over_another(tmp_path: Path) -> None:
    path = tmp_path / "site.key"
    key = PrivateKey.create(path)
    with pytest.raises(SitesError, match="there is a key already, which is kept"):
        PrivateKey.create(path)
    assert PrivateKey.read(path).public == key.public


def test_files_that_are_no_private_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.key"
    with pytest.raises(SitesError, match="cannot be read"):
        PrivateKey.read(path)
    PrivateKey.create(path)
    path.chmod(0o640)
    with pytest.raises(SitesError, match=f"other users can read this key; run: chmod 600 {path}"):
        PrivateKey.read(path)
    whole = path.read_bytes()
    for wrong in (b"", b"key", whole[:-40], os.urandom(2000)):
        path.write_bytes(wrong)
        path.chmod(0o600)
        with pytest.raises(SitesError, match="is not an Ed25519 key as PEM"):
            PrivateKey.read(path)


def test_a_fingerprint_is_the_first_half_of_the_sha_256() -> None:
    # SHA-256 of the empty text, FIPS 180-4.
    assert fingerprint_of(b"") == "e3b0-c442-98fc-1c14-9afb-f4c8-996f-b924"
    keys = [PrivateKey.drawn().public for _ in range(20)]
    assert len({key.fingerprint for key in keys}) == len({key.raw for key in keys}) == 20


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 33])
def test_a_public_key_has_64_hexadecimal_digits(text: str) -> None:
    with pytest.raises(SignatureError, match="a public key has"):
        PublicKey.of_hex(text)


def test_without_its_libraries_a_command_names_them(tmp_path: Path) -> None:
    """In a process in which `cryptography` cannot be found; `import fedbo` and the help need none of the libraries."""
    code = (
        "import sys\n"
        "for name in ('cryptography', 'httpx', 'uvicorn'): sys.modules[name] = None\n"
        "import fedbo, fedbo.cli\n"
        "import fedbo.sites.keys as keys\n"
        "keys.find_spec = lambda name: None\n"
        "sys.exit(fedbo.cli.main(['site', 'new', 'north']))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert told.returncode == 1
    assert told.stderr == (
        "keys and sites require cryptography, httpx, uvicorn; install with: pip install cryptography httpx uvicorn\n"
    )
    assert not list(tmp_path.glob("north/*.key"))
