"""The contents of every request that left a site, and of every answer that left a coordinator, read from the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedbo.sites.audit import read_sent
from fedbo.sites.documents import Approval
from fedbo.sites.errors import SitesError
from fedbo.sites.folders import AUDIT
from fedbo.sites.orders import decode_report
from fedbo.sites.terms import SyncTerms, load_terms, sync_terms
from fedbo.sites.wire import ANSWER_HEAD, ANSWER_MAGIC, REQUEST_HEAD, WireError, read_head, unpack_reply, unpack_sync


def sent_by(where: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of all that was sent by an audit log, or by those of all studies of a site's folder, with its contents.

    The contents of reports are listed for studies whose approval is in the folder. SitesError where there is no log,
    DamagedError where one was changed.
    """
    logs = [where] if where.is_file() else sorted(where.glob(f"runs/*/{AUDIT}"))
    if not logs:
        raise SitesError(f"'{where}': nothing has left; name the folder of a site that has joined a study, or an audit log")
    for log in logs:
        terms = _terms_of(log)
        for record, body in read_sent(log):
            yield {**record, "contents": contents_of(body, terms)}


def contents_of(data: bytes, terms: SyncTerms | None) -> str:
    """Return in words what a request or an answer holds besides their numbers; `terms` are those of the study."""
    try:
        if data.startswith(ANSWER_MAGIC):
            order = unpack_reply(data[ANSWER_HEAD:]).order
            return f"order ({len(order):,} bytes)" if order else "no order"
        agent, sync = read_head(data[:REQUEST_HEAD]).agent, unpack_sync(data[REQUEST_HEAD:])
    except WireError:
        return "no report"
    return "; ".join(_report_in_words(agent, lease, report, terms) for lease, report in sync.reports) or "no report"


def _report_in_words(agent: int, lease: int, data: bytes, terms: SyncTerms | None) -> str:
    if terms is None:
        return f"report {lease} ({len(data):,} bytes)"
    report = decode_report(agent, lease, data, terms)
    arrays = [f"{name} {tuple(array.shape)}" for name, array in (report.payload or {}).items()]
    message = ", ".join(arrays) or ("an empty message" if report.payload is not None else "no message")
    rows = len(report.released)
    return f"step {report.step}: {message}" + (f", {terms.share} of {rows}" if rows else "")


def _terms_of(log: Path) -> SyncTerms | None:
    """Return the terms of the study of a log, from the approval in the site's folder; None without one."""
    for path in sorted(log.parent.parent.parent.glob("*.json")):
        with suppress(SitesError):
            approval = Approval.read(path)
            if approval.digest.hex().startswith(log.parent.name):
                return sync_terms(load_terms(approval.terms))
    return None
