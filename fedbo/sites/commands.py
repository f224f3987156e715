"""The commands of studies at sites: the coordinator, a site, keys, approvals, revocations, checks, and what has left a site."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedbo.commands.arguments import FAILED, Format, Printed, Quiet, Stop, StudyFile, print_json, progress_display, say_failures
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.sites.folders import ServiceFolder

ApprovalFile = Annotated[
    Path, typer.Argument(metavar="APPROVAL", help="The approval that the coordinator sent.", show_default=False)
]
SiteOption = Annotated[
    Path | None, typer.Option("--site", help="Folder of the site. Default: the folder of the approval.", show_default=False)
]
StudyOption = Annotated[Path, typer.Option("--study", metavar="STUDY", help="The study file.", show_default=False)]
ServiceOption = Annotated[
    Path | None,
    typer.Option("--service", help="Folder of keys, certificates and approvals. Default: STUDY.sites", show_default=False),
]

site = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create the key of a site, accept an approval, rotate the key."
)


@site.command("new", epilog="\b\nExample:\n  fedbo site new north")
def site_new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the site.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="Name of the site. Default: that of the folder.", show_default=False)] = None,
    printed: Printed = Format.text,
) -> None:
    """Create the key of a site, which never leaves its folder, its policy, and the request to send to the coordinator."""
    from fedbo.sites.folders import POLICY, REQUEST, SITE_KEY, SiteFolder
    from fedbo.sites.keys import PrivateKey

    created = SiteFolder.create(folder, name or folder.resolve().name)
    public = PrivateKey.read(created.path / SITE_KEY).public
    facts = {"folder": str(folder), "request": str(folder / REQUEST), "fingerprint": public.fingerprint}
    lines = [
        f"send {folder / REQUEST} to the coordinator, and read out the fingerprint of its key: {public.fingerprint}",
        f"what the site allows is in {folder / POLICY}; the key stays in {folder / SITE_KEY}",
    ]
    _print(facts, lines, printed)


@site.command("accept", epilog="\b\nExample:\n  fedbo site accept approval.json 1f3a-… --site north")
def site_accept(
    approval: ApprovalFile,
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="The study's, as the coordinator reads it out.", show_default=False)
    ],
    site: SiteOption = None,
    printed: Printed = Format.text,
) -> None:
    """Accept an approval: keep it in the site's folder, and let the site's policy admit its study."""
    from fedbo.sites.documents import Approval
    from fedbo.sites.folders import SiteFolder

    folder = SiteFolder.of(approval, site)
    approved = Approval.read(approval)
    kept = folder.accept(approved, fingerprint)
    facts = {"approval": str(kept), "study": approved.study, "agent": approved.agent}
    words = f"the site admits the study '{approved.study}' as its agent {approved.agent}; check it with"
    _print(facts, [f"{words}: fedbo preflight {quoted(kept)} objective.py:function"], printed)


@site.command("rotate", epilog="\b\nExample:\n  fedbo site rotate north/approval.json")
def site_rotate(approval: ApprovalFile, site: SiteOption = None, printed: Printed = Format.text) -> None:
    """Create another key for a site, and the request to replace the one that an approval is of.

    The earlier key is valid until the coordinator approves the request; then put the new approval in its place, and join again.
    """
    from fedbo.sites.documents import Approval
    from fedbo.sites.folders import REQUEST, SiteFolder

    folder = SiteFolder.of(approval, site)
    request = folder.rotate(Approval.read(approval))
    facts = {"request": str(folder.path / REQUEST), "fingerprint": request.signer.fingerprint}
    words = f"send {folder.path / REQUEST} to the coordinator; the fingerprint of the new key: {request.signer.fingerprint}"
    _print(facts, [words], printed)


def approve(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="The request of a site.", show_default=False)],
    study: StudyOption,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Address at which sites reach the server, https://HOST:PORT. For the first site.", show_default=False
        ),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="Fingerprint of the key as the site reads it out; compare it.", show_default=False)
    ] = None,
    agent: Annotated[
        int | None, typer.Option(min=0, help="Number of the site's agent. Default: the next free one.", show_default=False)
    ] = None,
    connection: Annotated[
        str | None, typer.Option(help="tls, or proxy if something in front ends TLS. For the first site.", show_default="tls")
    ] = None,
    certificate: Annotated[
        str | None,
        typer.Option(help="own, of an authority that approvals pin, or public. For the first site.", show_default="own"),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Another name or address of the server's certificate. For the first site.")
    ] = None,
    service: ServiceOption = None,
    printed: Printed = Format.text,
) -> None:
    """Enter a site into the roster of a study, and write its approval, which is sent back to the site.

    The first approval creates the coordinator's key and certificate, beside the study. They work for a study whose objective
    is "sites".
    """
    from fedbo.sites.documents import SiteRequest
    from fedbo.sites.folders import ServiceFolder
    from fedbo.sites.terms import public_terms
    from fedbo.study.study import load_study

    asked = SiteRequest.read(request)
    if fingerprint is not None and fingerprint.strip().lower() != asked.signer.fingerprint:
        words = f"--fingerprint: the key of this request has {asked.signer.fingerprint}; ask the site for its request again"
        raise typer.BadParameter(words)
    terms = public_terms(load_study(study))
    path = service or ServiceFolder.of_study(study)
    first = {"--endpoint": endpoint, "--connection": connection, "--certificate": certificate, "--name": name or None}
    if not (path / "service.json").exists():
        if endpoint is None:
            raise typer.BadParameter("the first approval needs --endpoint https://HOST:PORT, at which sites reach the server")
        folder = ServiceFolder.create(path, terms, endpoint, connection or "tls", certificate or "own", name or ())
    else:
        folder = ServiceFolder(path)
        folder.check_terms(terms)
        for option, value in first.items():
            if value is not None and (option, value) != ("--endpoint", folder.endpoint):
                raise typer.BadParameter(f"{option} was decided by the first approval; remove it, or use another --service")
    _approve(folder, asked, agent, fingerprint is not None or asked.replaces is not None, printed)


def _approve(folder: ServiceFolder, request: Any, agent: int | None, compared: bool, printed: Format) -> None:
    approval = folder.approve(request, agent)
    path = folder.path / "approvals" / f"{approval.name}.json"
    facts = {"approval": str(path), "agent": approval.agent, "study": approval.fingerprint, "site": request.signer.fingerprint}
    lines = [
        f"agent {approval.agent}: site '{approval.name}', key {request.signer.fingerprint}",
        f"send {path} to the site, and read out the fingerprint of the study: {approval.fingerprint}",
    ]
    if not compared:
        print("the site's key was not compared: ask the site for its fingerprint (--fingerprint)", file=sys.stderr)
    _print(facts, lines, printed)


def revoke(
    agent: Annotated[int, typer.Argument(metavar="AGENT", help="Number of the agent.", show_default=False)],
    study: StudyOption,
    service: ServiceOption = None,
    printed: Printed = Format.text,
) -> None:
    """Revoke the key of a site, at once and also while the study runs; its agent counts as away from then on."""
    from fedbo.sites.folders import ServiceFolder

    folder = ServiceFolder(service or ServiceFolder.of_study(study))
    entry = folder.revoke(agent)
    lines = [
        f"agent {agent}: the key of '{entry.name}' is revoked",
        f"for another site: fedbo approve REQUEST --study {quoted(study)} --agent {agent}",
    ]
    _print({"agent": agent, "name": entry.name, "key": entry.key}, lines, printed)


def preflight(
    approval: ApprovalFile,
    objective: Annotated[
        str | None, typer.Argument(metavar="OBJECTIVE", help="The site's objective, file.py:function.", show_default=False)
    ] = None,
    site: SiteOption = None,
    printed: Printed = Format.text,
) -> None:
    """Check that a site can take part: approval, disk, terms, policy, network, certificate, coordinator, one evaluation.

    Each check that fails has its remedy, and the command ends with 1. Nothing changes at the coordinator.
    """
    from fedbo.figures.reports.tables import console, health_table
    from fedbo.sites.documents import Approval
    from fedbo.sites.folders import SiteFolder
    from fedbo.sites.preflight import preflight as findings

    found = [one._asdict() for one in findings(Approval.read(approval), SiteFolder.of(approval, site), objective)]
    if printed is Format.json:
        print_json({"findings": found})
    else:
        console().print(health_table(found))
    if any(one["state"] == "broken" for one in found):
        raise Stop(FAILED)


def sent(
    where: Annotated[Path, typer.Argument(metavar="SITE", help="Folder of a site, or an audit log.", show_default=False)],
    printed: Printed = Format.text,
) -> None:
    """List every request that left a site, or every answer that left a coordinator, with its size and content.

    --format json also has all of its bytes. The log is a chain: a line that was changed, removed or put in is an error.
    """
    from fedbo.figures.reports.tables import console, table_of
    from fedbo.sites.sent import sent_by

    found = list(sent_by(where))
    if printed is Format.json:
        print_json({"sent": found})
        return
    rows = [(each["time"], each["target"], f"{each['bytes']:,}", each["contents"]) for each in found]
    console().print(table_of("", ("time", "target", "bytes", "contents"), rows))
    print(f"{len(found)} bodies, {sum(each['bytes'] for each in found):,} bytes")


def _print(facts: dict[str, Any], lines: list[str], printed: Format) -> None:
    if printed is Format.json:
        print_json(facts)
    else:
        print("\n".join(lines))


def serve(
    study: StudyFile,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address at which the server listens.")] = "0.0.0.0:7443",
    service: ServiceOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the results. Default: run in the folder of the service.", show_default=False),
    ] = None,
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Serve a study to its sites until it has ended, and print its summary; a study that was killed continues.

    The study begins once every site has joined. A site that is silent for longer than `[sites] lease` counts as away, and goes
    on when it is back.
    """
    from fedbo.commands.run import finish
    from fedbo.sites.folders import ServiceFolder
    from fedbo.sites.serve import serve_study
    from fedbo.study.study import load_study

    checked = load_study(study)
    folder = ServiceFolder(service or ServiceFolder.of_study(study))
    again = f"fedbo serve {quoted(study)} --listen {listen}"
    finish(lambda: serve_study(checked, listen, folder, out, progress_display(quiet)), printed, again)


def join(
    approval: ApprovalFile,
    objective: Annotated[
        str, typer.Argument(metavar="OBJECTIVE", help="The objective of this site, file.py:function.", show_default=False)
    ],
    site: SiteOption = None,
    patience: Annotated[
        float, typer.Option(min=1.0, help="Seconds without an answer of the coordinator after which the site ends.")
    ] = 86400.0,
    isolate: Annotated[bool, typer.Option("--isolate", help="Run each evaluation in a process of its own.")] = False,
    printed: Printed = Format.text,
) -> None:
    """Take part in a study with an objective of this site; observations stay here, and nothing listens here.

    A site that was killed goes on when it joins again.
    """
    from fedbo.objectives.python_function import load
    from fedbo.settings.trust import admit
    from fedbo.sites.join import join_study

    admit([objective])
    done = join_study(approval, load(objective, "objective"), site, patience, isolate)
    if printed is Format.json:
        print_json(done.facts())
    else:
        print(f"agent {done.agent}: {done.evaluations} evaluations, {done.failed} of them failed")
        cost = "" if done.cost is None else f", which have cost at most {done.cost}"
        print(f"evaluations begun, repeated ones included: {done.begun}; messages sent: {done.messages}{cost}")
        if done.best is not None:
            print(f"best value: {done.best:.6g} at " + ", ".join(f"{name} = {value:.6g}" for name, value in done.point.items()))
        print(f"results: {done.directory}")
    say_failures(done.failed, done.evaluations, done.first_error)
