"""The errors of keys, documents and policies of sites, which a command reports in one line."""

from __future__ import annotations

from fedbo.settings.errors import FedboError
from fedbo.settings.shown import shown


class SitesError(FedboError, ValueError):
    """A file of a site or of a coordinator that cannot be used; the message names it and the remedy."""

    def __str__(self) -> str:
        """Return the message, with escaped control characters of a document of somebody else."""
        return shown(super().__str__())


class SignatureError(SitesError):
    """A signature that does not belong to the key and the bytes."""


class DocumentError(SitesError):
    """A request, a roster or an approval that is not as its format demands."""


class PolicyError(SitesError):
    """A policy file that is invalid, or a study that the policy of a site does not admit."""
