"""The random streams of a site: what all agents share comes from the study's seed, and its own draws from a secret."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from fedbo.algorithms.streams import Streams


@dataclass(slots=True, unsafe_hash=True)
class SiteStreams(Streams):
    """Streams whose key is secret, but for draws that all agents share: those have the study's seed and replicate."""

    public_seed: int = 0
    public_replicate: int = 0

    def shared(self, purpose: str) -> np.random.Generator:
        """Return the generator that every agent of the study obtains for this purpose."""
        return Streams(self.public_seed, self.public_replicate, scope=self.scope).rng(purpose)

    def at(self, step: int) -> Streams:
        """Return the same owner's streams at another step."""
        return replace(self, step=step)

    def of(self, owner: int) -> Streams:
        """Return another owner's streams at the same step."""
        return replace(self, owner=owner)

    def within(self, scope: str) -> Streams:
        """Return the same owner's streams for another task."""
        return replace(self, scope=scope)


def site_streams(public: Streams, agent: int, secret: bytes) -> SiteStreams:
    """Return the streams of a site with a secret `(32,)`: both words of their key, 128 bits, are hashes of it."""
    named = f"{public.seed}/{public.replicate}/{agent}".encode()
    words = np.frombuffer(hashlib.blake2b(named, key=secret, digest_size=16).digest(), "<u8")
    return SiteStreams(
        int(words[0]), int(words[1]), scope=public.scope, public_seed=public.seed, public_replicate=public.replicate
    )
