"""Every request that left a site, as its audit log holds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedbo.sites.audit import body_of, read_audit
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import AUDIT
from fedbo.sites.wire import REQUEST_HEAD, WireError, unpack_sync


def sent_by(where: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of requests in an audit log, or in those of all studies of a site's folder, with their contents.

    SitesError where there is no log, DamagedError where one was changed.
    """
    logs = [where] if where.is_file() else sorted(where.glob(f"runs/*/{AUDIT}"))
    if not logs:
        raise SitesError(f"'{where}': nothing has left; name the folder of a site that has joined a study, or an audit log")
    for log in logs:
        for record in read_audit(log):
            if record["event"] == "sent":
                yield {**record, "contents": contents_of(body_of(record))}


def contents_of(data: bytes) -> str:
    """Return in words what a request holds besides numbers of orders and of requests."""
    try:
        sync = unpack_sync(data[REQUEST_HEAD:])
    except WireError:
        return "no report"
    reports = [f"report {lease} ({len(report):,} bytes)" for lease, report in sync.reports]
    return ", ".join(reports) or "no report"
