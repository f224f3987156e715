"""The checks of `fedbo preflight`: whether a site can take part in a study, before it does."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from fedbo.actors.storage import atomic
from fedbo.algorithms.reveals import revealed_by
from fedbo.algorithms.streams import Streams
from fedbo.objectives.outcome import Outcome
from fedbo.objectives.python_function import load
from fedbo.objectives.sites import AtThisSite, Sites
from fedbo.objectives.space import from_unit
from fedbo.settings.arguments import short
from fedbo.settings.errors import FedboError
from fedbo.settings.shown import shown
from fedbo.settings.trust import admit
from fedbo.settings.version import Finding
from fedbo.sites.certificates import authority_fingerprint, client_context
from fedbo.sites.documents import Approval
from fedbo.sites.folders import SiteFolder
from fedbo.sites.terms import asked_of, load_terms, mask_terms, most_cost
from fedbo.study.study import Study

SECONDS = 10.0  # that each step of the network may take
LEAST_SPACE = 2**28  # bytes of free disk: the outbox, the audit log and the observations of a long study
SOON = 30 * 24 * 3600.0  # seconds before the end of a certificate at which a warning begins


def preflight(approval: Approval, folder: SiteFolder, objective: str | None = None) -> Iterator[Finding]:
    """Yield one finding for each check, in their order; no check changes anything at the coordinator.

    `objective` is the place of the site's function, "file.py:name"; without one no evaluation is tried.
    """
    yield _tried("approval", lambda: _key(approval, folder))
    yield _tried("disk", lambda: _disk(folder.run_folder(approval)))
    terms, study = _read_terms(approval)
    yield terms
    if study is not None:
        yield _tried("policy", lambda: _policy(study, approval, folder))
    yield from _connection(approval, folder)
    if study is not None:
        yield _evaluation(study, approval.agent, objective)


def _tried(what: str, check: Callable[[], str]) -> Finding:
    """Run one check; its error, whose last clause is the remedy, makes it broken."""
    try:
        return Finding(what, "ok", check())
    except (FedboError, OSError) as error:
        words, _, remedy = str(error).rpartition("; ")
        return Finding(what, "broken", words or remedy, remedy if words else "see the message")


def _key(approval: Approval, folder: SiteFolder) -> str:
    key = folder.key(approval)
    where = f"agent {approval.agent} of '{approval.study}', coordinator {approval.signer.fingerprint}"
    return f"{where}, own key {key.public.fingerprint}"


def _disk(run: Path) -> str:
    there = run
    while not there.exists():
        there = there.parent
    probe = there / f".preflight.{os.getpid()}"
    try:
        atomic.write_bytes(probe, b"written and synced")
    finally:
        probe.unlink(missing_ok=True)
    free = shutil.disk_usage(there).free
    if free < LEAST_SPACE:
        raise OSError(f"{free / 2**20:,.0f} MiB are free in '{there}'; free {LEAST_SPACE / 2**20:,.0f} MiB")
    return f"{free / 2**30:,.1f} GiB free"


def _read_terms(approval: Approval) -> tuple[Finding, Study | None]:
    try:
        study = load_terms(approval.terms)
        cost = most_cost(study, approval.agent)
    except FedboError as error:
        words, _, remedy = str(error).rpartition("; ")
        return Finding("terms", "broken", words or remedy, remedy if words else "ask for another approval"), None
    table, asked = study.algorithm[0], asked_of(study)
    reveals = revealed_by(table.make())
    parameters = ", ".join(parameter.name for parameter in study.federation().parameters)
    found = f'{table.name}, parameters {short(parameters)[1:-1]}, messages reveal: {reveals.value}, share = "{asked.share}"'
    found += "" if cost is None else f", messages cost at most {cost}"
    masks = mask_terms(study, approval.digest)
    found += "" if masks is None else f", hidden among at least {masks.least} sites"
    if masks is not None and masks.least == 2:  # the sum of two less the message of one is that of the other
        found += ": with the coordinator, any one other can read them"
        return Finding("terms", "missing", found, "ask for rounds of three sites or more, or trust each of them"), study
    return Finding("terms", "ok", found), study


def _policy(study: Study, approval: Approval, folder: SiteFolder) -> str:
    policy = folder.policy()
    cost = most_cost(study, approval.agent)
    reveals = revealed_by(study.algorithm[0].make()).value
    policy.admit(approval, asked_of(study).share, reveals, None if cost is None else cost.epsilon)
    allowed = f'at most {policy.evaluations:,} evaluations, share = "{policy.share}", epsilon = {policy.epsilon:g}'
    return f"study {approval.fingerprint} is admitted; {allowed}"


def _connection(approval: Approval, folder: SiteFolder) -> Iterator[Finding]:
    """Check name, port, certificate and the coordinator's answer; what follows a broken check is not tried."""
    parts = urlsplit(approval.endpoint)
    host, port = str(parts.hostname), parts.port or 443
    proxy = _proxy_for(approval.endpoint)
    via = "" if proxy is None else f" (of the proxy in HTTPS_PROXY for {host})"
    end = (host, port) if proxy is None else proxy
    own = [partial(_certificate, approval, end)] if proxy is None else []
    for check in (partial(_name, end, via), partial(_port, end, via), *own, partial(_answer, approval, folder)):
        finding = check()
        yield finding
        if finding.state == "broken":
            return


def _proxy_for(endpoint: str) -> tuple[str, int] | None:
    """Return host and port of the proxy that the environment names for an address; None without one."""
    from fedbo.sites.client import proxy_of

    address = proxy_of(endpoint)
    if not address:
        return None
    parts = urlsplit(address if "//" in address else f"//{address}")
    return str(parts.hostname), parts.port or (443 if parts.scheme == "https" else 80)


def _name(end: tuple[str, int], via: str) -> Finding:
    try:
        found = socket.getaddrinfo(*end, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        remedy = "check the endpoint with the coordinator, and the name server of this machine"
        return Finding("name", "broken", f"{end[0]}{via}: {getattr(error, 'strerror', None) or error}", remedy)
    return Finding("name", "ok", f"{end[0]}{via} is {', '.join(dict.fromkeys(str(each[4][0]) for each in found))}")


def _port(end: tuple[str, int], via: str) -> Finding:
    begun = time.monotonic()
    try:
        socket.create_connection(end, SECONDS).close()
    except OSError as error:
        words = f"{end[0]}:{end[1]}{via}: {error.strerror or error}"
        remedy = "ask the coordinator whether fedbo serve runs, and open outgoing connections to this port, or set HTTPS_PROXY"
        return Finding("port", "broken", words, remedy)
    return Finding("port", "ok", f"{end[0]}:{end[1]}{via} accepts in {1000 * (time.monotonic() - begun):.0f} ms")


def _certificate(approval: Approval, end: tuple[str, int]) -> Finding:
    try:
        context = client_context(approval.trust)
        with socket.create_connection(end, SECONDS) as bare, context.wrap_socket(bare, server_hostname=end[0]) as wrapped:
            found, version = wrapped.getpeercert() or {}, wrapped.version()
    except ssl.SSLCertVerificationError as error:
        remedy = "compare clocks; if they agree, something else answers there: tell the coordinator"
        if approval.trust.certificate == "public":
            remedy = "ask the coordinator for a certificate that this system accepts, or set SSL_CERT_FILE"
        return Finding("certificate", "broken", shown(error.verify_message), remedy)
    except (OSError, FedboError) as error:
        return Finding("certificate", "broken", f"no TLS: {error}", "ask the coordinator which program answers at the port")
    left = ssl.cert_time_to_seconds(str(found.get("notAfter"))) - time.time()
    words = f"{version}, {authority_fingerprint(approval.trust)}, valid for {left / 86400:,.0f} days"
    if left < SOON:
        return Finding("certificate", "missing", words, "ask the coordinator to renew the certificate")
    return Finding("certificate", "ok", words)


def _answer(approval: Approval, folder: SiteFolder) -> Finding:
    """Send a signed request that changes nothing, and check the signed answer."""
    from fedbo.sites.client import SiteConnectionError, hello

    try:
        refusal = hello(approval, folder.key(approval), client_context(approval.trust))
    except (SiteConnectionError, FedboError) as error:
        return Finding("coordinator", "broken", shown(str(error))[:200], "ask the coordinator whether fedbo serve runs")
    if refusal:
        return Finding("coordinator", "broken", shown(refusal)[:200], "ask the coordinator for a new approval")
    return Finding("coordinator", "ok", "knows this key, and signed its answer")


def _evaluation(study: Study, agent: int, objective: str | None) -> Finding:
    """Evaluate the objective once, at a point drawn at random."""
    if objective is None:
        remedy = "name the objective too: fedbo preflight APPROVAL objective.py:function"
        return Finding("evaluation", "missing", "not tried", remedy)
    begun = time.monotonic()
    try:
        value = _evaluated(study, agent, objective)
    except Exception as error:  # noqa: BLE001 -- of the site's own code
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return Finding("evaluation", "broken", shown(words)[:200], "correct the objective")
    took = time.monotonic() - begun
    if not np.isfinite(value):
        return Finding("evaluation", "broken", f"the value is {value}", "let the objective return a finite number")
    return Finding("evaluation", "ok", f"{value:.6g} in {took:.3g} s")


def _evaluated(study: Study, agent: int, objective: str) -> float:
    admit((objective,))  # which the site's own user names
    federation = study.federation()
    assert isinstance(federation, Sites)
    rng = Streams(0).rng("preflight")
    one: Any = AtThisSite(federation, load(objective, "objective")).objective(agent, rng, rng)
    u = rng.random((1, len(federation.parameters)))
    lattice = federation.lattice
    x = from_unit(federation.parameters, u if lattice is None else lattice.project(u))[0]
    outcome = one.evaluate(x, rng)
    return float(federation.metric.sign * (outcome.value if isinstance(outcome, Outcome) else outcome))
