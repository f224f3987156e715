"""The bytes of the messages by which sites agree on masks, their signed and encrypted parts, and the keys for these.

Each message begins with its version, its kind, its sender or receiver, and the number of its round. Its length follows from the
cohort, so no message is read that has another one. Nothing in it names code.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from fedbo.privacy.mask_sizes import HEADER, KEY, SIGNATURE, MessageSizes
from fedbo.privacy.secret_sharing import Limbs, read_shares
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.sites.errors import SignatureError, SitesError
from fedbo.sites.keys import PublicKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

VERSION = 1
ADVERT = 2 * KEY + SIGNATURE
_HEAD = struct.Struct("<BBIQ")  # version, kind, agent, round
_MEMBER = struct.Struct("<I32s")  # agent, key of its site
assert _HEAD.size == HEADER


class MaskingError(SitesError):
    """A message of a round of secure aggregation that is refused."""


class MaskStep(IntEnum):
    """The kinds of messages: the first five are from the coordinator to a site, the others from a site.

    By `GONE` a site says that it has dropped out of a round, so that nobody waits for it.
    """

    OPENING = 1
    KEYS = 2
    DELIVERED = 3
    SENDERS = 4
    CONFIRMATIONS = 5
    ADVERT = 17
    DEALT = 18
    MASKED = 19
    CONFIRMATION = 20
    SHARES = 21
    GONE = 22


_KINDS = {kind.value: kind for kind in MaskStep}


class MaskTerms(NamedTuple):
    """The facts that both sides know before the first round.

    - `settings`: of secure aggregation.
    - `study`: the digest of the study `(32,)`, and `agents` the number of its agents.
    - `length`: how many numbers a masked vector has.
    - `least`: how many agents a cohort has at least, see `least_cohort`.
    """

    settings: SecureAggregation
    study: bytes
    agents: int
    length: int
    least: int

    def needed(self, cohort: int) -> int:
        """Return how many of a cohort must send shares; more than it has where it is too small."""
        return max(self.least, self.settings.needed(cohort))

    @property
    def most_bytes(self) -> int:
        """Return the bytes of the longest legal message of a round with all agents, in either direction."""
        n = self.agents
        sizes = MessageSizes(n)
        masked = sizes.masked(self.length, self.settings.bits)
        return max(sizes.keys(n), sizes.delivered(n), sizes.confirmations(n), masked, sizes.shares(n))


def message(kind: MaskStep, agent: int, number: int, *parts: bytes) -> bytes:
    """Return a message from or to an agent in round `number`."""
    return b"".join((_HEAD.pack(VERSION, kind, agent, number), *parts))


def head(data: bytes) -> tuple[MaskStep, int, int]:
    """Return kind, agent and round of a message; MaskingError if it is none."""
    if len(data) < HEADER:
        raise MaskingError(f"a message of masks has at least {HEADER} bytes, not {len(data)}")
    version, kind, agent, number = _HEAD.unpack_from(data)
    if version != VERSION or kind not in _KINDS:
        raise MaskingError(f"a message of masks has version {version} and kind {kind}, which this fedbo does not know")
    return _KINDS[kind], agent, number


def letter_number(kind: MaskStep, number: int) -> int:
    """Return the number of the letter that carries a message of the coordinator; it grows from message to message."""
    return 8 * number + kind


def body(data: bytes, size: int, what: str) -> bytes:
    """Return what follows the head of a message that must have `size` bytes; MaskingError if it has not."""
    if len(data) != size:
        raise MaskingError(f"{what}: must have {size} bytes, but has {len(data)}")
    return data[HEADER:]


def listed(members: Iterable[int], cohort: int) -> bytes:
    """Write some places of a cohort as bits."""
    return sum(1 << place for place in set(members)).to_bytes(MessageSizes(cohort).members, "little")


def read_list(data: bytes, cohort: int, size: Callable[[int], int], what: str) -> tuple[list[int], bytes]:
    """Return the places that a message lists, in order, and what follows the list.

    `size` returns the bytes that a message with so many places must have; MaskingError if it has not.
    """
    bits = int.from_bytes(data[HEADER : HEADER + MessageSizes(cohort).members], "little")
    members = [place for place in range(cohort) if bits >> place & 1]
    if bits >> cohort:
        raise MaskingError(f"{what}: lists agents that are not in the cohort")
    return members, body(data, size(len(members)), what)[MessageSizes(cohort).members :]


def opening(agent: int, number: int, keys: Mapping[int, PublicKey]) -> bytes:
    """Return the message that opens a round for an agent: all agents of its cohort, and the keys of their sites."""
    return message(MaskStep.OPENING, agent, number, *(_MEMBER.pack(one, keys[one].raw) for one in sorted(keys)))


def read_opening(data: bytes, terms: MaskTerms) -> tuple[int, int, dict[int, PublicKey]]:
    """Return round, receiver, and the sites' keys by agent; MaskingError where it opens no round of this study."""
    kind, agent, number = head(data)
    count, rest = divmod(len(data) - HEADER, _MEMBER.size)
    listing = list(_MEMBER.iter_unpack(data[HEADER:])) if not rest and 2 <= count <= terms.agents else []
    agents = [one for one, _ in listing]
    if kind is not MaskStep.OPENING or not agents or agents != sorted({*agents}) or agents[-1] >= terms.agents:
        raise MaskingError("the opening of a round must list two or more agents of the study, in order and each once")
    keys = {one: PublicKey(raw) for one, raw in listing}
    if len({*keys.values()}) < len(keys):
        raise MaskingError("the opening of a round lists one key for several agents")
    return number, agent, keys


def advert_text(terms: MaskTerms, number: int, sites: Mapping[int, PublicKey], agent: int, keys: bytes) -> bytes:
    """Return what a site signs about its two keys of a round."""
    cohort = hashlib.sha256(opening(agent, number, sites)).digest()
    return b"fedbo masks 1, keys" + terms.study + cohort + keys


def check_advert(terms: MaskTerms, number: int, sites: Mapping[int, PublicKey], agent: int, advert: bytes) -> None:
    """Check that a site has signed its keys, for this round and cohort; MaskingError otherwise."""
    text = advert_text(terms, number, sites, agent, advert[: 2 * KEY])
    _verify(sites, agent, text, advert[2 * KEY :], "signed no such keys for this round")


def context_of(terms: MaskTerms, number: int, sites: Mapping[int, PublicKey], keys: Mapping[int, bytes]) -> bytes:
    """Return the digest `(32,)` of all that a round depends on: study, round, cohort, and both keys of each place."""
    advertised = b"".join(struct.pack("<I", place) + keys[place] for place in sorted(keys))
    return hashlib.sha256(b"fedbo masks 1, round" + terms.study + opening(0, number, sites) + advertised).digest()


def confirmation_text(context: bytes, agent: int, lists: bytes) -> bytes:
    """Return what a site signs about a round: the lists of those that dealt shares to it, and that sent a masked vector."""
    return b"fedbo masks 1, senders" + context + struct.pack("<I", agent) + lists


def check_confirmation(sites: Mapping[int, PublicKey], context: bytes, agent: int, lists: bytes, signature: bytes) -> None:
    """Check that a site has signed the lists of a round; MaskingError otherwise."""
    _verify(sites, agent, confirmation_text(context, agent, lists), signature, "confirmed other senders")


def _verify(sites: Mapping[int, PublicKey], agent: int, text: bytes, signature: bytes, otherwise: str) -> None:
    try:
        sites[agent].verify(text, signature)
    except SignatureError:
        raise MaskingError(f"agent {agent} {otherwise}") from None


def shares_in(data: bytes) -> Limbs:
    """Read shares `(n, LIMBS)`; MaskingError where they are none."""
    try:
        return read_shares(data)
    except ValueError as error:
        raise MaskingError(str(error)) from None


def key_of(secret: bytes) -> X25519PrivateKey:
    """Return the private key of a secret; shares that recover the secret give the key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(_derived(secret, b"", b"fedbo masks 1, key"))


def public_of(key: X25519PrivateKey) -> bytes:
    """Return the public half of a key `(32,)`."""
    return key.public_key().public_bytes_raw()


def agreed(key: X25519PrivateKey, other: bytes, context: bytes, *purposes: bytes) -> list[bytes]:
    """Return secrets `(32,)` that the owners of two keys share, for one round and each purpose; MaskingError for a weak key."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise MaskingError("an advertised key is not a key of X25519") from None
    return [_derived(shared, context, b"fedbo masks 1, " + purpose) for purpose in purposes]


def pair_secret(key: X25519PrivateKey, other: bytes, context: bytes) -> bytes:
    """Return the secret `(32,)` from which the mask of a pair is expanded."""
    (secret,) = agreed(key, other, context, b"mask")
    return secret


def way(sender: int, receiver: int) -> bytes:
    """Return the purpose of the secret that encrypts the shares from one place of a cohort to another."""
    return b"shares" + struct.pack("<II", sender, receiver)


def sealed(secret: bytes, data: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate the one message of a secret."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    # Each secret encrypts one message only, since it is of one round and one direction: the nonce may be constant.
    return ChaCha20Poly1305(secret).encrypt(bytes(12), data, context)


def unsealed(secret: bytes, data: bytes, context: bytes) -> bytes:
    """Decrypt a message; MaskingError where it was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(secret).decrypt(bytes(12), data, context)
    except InvalidTag:
        raise MaskingError("encrypted shares were changed on their way, or encrypted for another round") from None


def _derived(secret: bytes, salt: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=KEY, salt=salt, info=purpose).derive(secret)
