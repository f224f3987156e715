"""What a check of an installation, or of a site, has found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One check: its state is "ok", "missing" for something that is not needed, or "broken"; with a remedy if needed."""

    what: str
    state: str
    found: str
    remedy: str = ""
