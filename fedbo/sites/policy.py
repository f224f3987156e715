"""What a site allows: a TOML file that its owner writes, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from fedbo.sites.documents import Approval

Share = Literal["nothing", "scores", "observations"]


class SitePolicy(BaseModel):
    """The policy of a site.

    - `studies`: fingerprints of the studies that it serves (`Approval.fingerprint`).
    - `evaluations`: the most evaluations of one study, repeated ones included.
    - `share`: what may leave besides messages: nothing, each evaluation's score, or each observation with its point.
    - `reveals`: the most that messages may reveal of observations (`fedbo.algorithms.reveals`).
    """

    studies: tuple[str, ...] = ()
    evaluations: int = 1000
    share: Share = "nothing"
    reveals: str = "draws"

    @classmethod
    def read(cls, path: Path) -> SitePolicy:
        """Read a policy file; PolicyError where it is missing or invalid."""
        raise NotImplementedError

    def admit(self, approval: Approval, share: Share, reveals: str) -> None:
        """Check that the site serves a study whose public terms ask for `share` and whose messages reveal `reveals`; PolicyError."""
        raise NotImplementedError
