"""The commands that carry out a study at sites: the coordinator serves, and each site joins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands.arguments import Format, Printed, Quiet, StudyFile, print_json, progress_display, say_failures
from fedbo.commands.sites import ApprovalFile, ServiceOption, SiteOption
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.sites.work import SiteSummary


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
        _print(done)
    say_failures(done.failed, done.evaluations, done.first_error)


def _print(done: SiteSummary) -> None:
    print(f"agent {done.agent}: {done.evaluations} evaluations, {done.failed} of them failed")
    cost = "" if done.cost is None else f", which have cost at most {done.cost}"
    print(f"evaluations begun, repeated ones included: {done.begun}; messages sent: {done.messages}{cost}")
    if done.best is not None:
        print(f"best value: {done.best:.6g} at " + ", ".join(f"{name} = {value:.6g}" for name, value in done.point.items()))
    print(f"results: {done.directory}")
