"""The command `fedbo demo sites`: a coordinator and five sites on this machine, each with its own key, and a replay."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbo.commands.arguments import Format, Printed, Quiet, Stop, print_json, progress_display
from fedbo.commands.new import rendered, sites_files
from fedbo.settings.shown import quoted

# Name, dose and days that suit the site's patients, and seconds of a trial: sites are alike, and of unlike speed.
SITES = (
    ("north", (55.0, 20.0), 0.3),
    ("east", (60.0, 24.0), 0.5),
    ("south", (65.0, 22.0), 0.8),
    ("west", (58.0, 18.0), 1.2),
    ("harbour", (62.0, 26.0), 2.0),
)
ITERATIONS = 8
_PATIENCE = 120.0  # seconds
_STUDY = "vaccine"

demo = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run a demonstration on this machine.")


@demo.command("sites", epilog="\b\nExample:\n  fedbo demo sites --folder demo-sites")
def demo_sites(
    folder: Annotated[Path, typer.Option("--folder", help="A new folder for everything that is made.")] = Path("demo-sites"),
    printed: Printed = Format.text,
    quiet: Quiet = False,
) -> None:
    """Run a coordinator and five sites on this machine, and replay the record in virtual time; it takes about half a minute.

    Each is a process with a key of its own, joined by HTTPS with a certificate of the coordinator's own authority.
    """
    from fedbo.execution.replay import replay
    from fedbo.sites.folders import ServiceFolder
    from fedbo.sites.serve import serve_study
    from fedbo.study.paths import make_folder
    from fedbo.study.study import load_study

    if folder.exists() and any(folder.iterdir()):
        raise typer.BadParameter(f"--folder: '{folder}' is not empty; name another folder")
    make_folder(folder)
    study, service, port = _arranged(folder)
    with _joined(folder) as sites:
        result = serve_study(load_study(study), f"127.0.0.1:{port}", ServiceFolder(service), None, progress_display(quiet))
        for process in sites.values():
            process.join(_PATIENCE)
        told = {name: _told(folder, name) for name in sites}
    repeated = replay(Path(result.directory), verify=True)
    if printed is Format.json:
        print_json({"directory": str(result.directory), "sites": told, "events": repeated.events, "same": repeated.same})
        return
    for name, words in told.items():
        print(f"{name}: {words.splitlines()[0]}; {' '.join(words.splitlines()[1:2])}")
    print(f"the replay in virtual time: {repeated.words}")
    print(f"next: fedbo show {quoted(result.directory)}, and what left a site: fedbo sent {quoted(folder / SITES[0][0])}")


def _arranged(folder: Path) -> tuple[Path, Path, int]:
    """Write the study, and make keys, approvals and policies of all sites; return the study, the service's folder, the port."""
    from fedbo.sites.documents import SiteRequest
    from fedbo.sites.folders import POLICY, REQUEST, ServiceFolder, SiteFolder
    from fedbo.sites.terms import public_terms
    from fedbo.study.study import load_study

    study = folder / f"{_STUDY}.toml"
    for name, best, seconds in SITES:
        filled: dict[str, Any] = {"agents": len(SITES), "iterations": ITERATIONS, "share": "scores"}
        files = sites_files(_STUDY, f"{name}/objective.py", **filled, best=best, seconds=seconds)
        for path, text in rendered(files).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        port = int(found.getsockname()[1])
    service = ServiceFolder.create(ServiceFolder.of_study(study), public_terms(load_study(study)), f"https://localhost:{port}")
    for name, _, _ in SITES:
        site = SiteFolder.create(folder / name, name)
        approval = service.approve(SiteRequest.read(site.path / REQUEST))
        site.accept(approval, approval.fingerprint)
        policy = (site.path / POLICY).read_text(encoding="utf-8")
        (site.path / POLICY).write_text(policy.replace('share = "nothing"', 'share = "scores"'), encoding="utf-8")
    return study, service.path, port


@contextmanager
def _joined(folder: Path) -> Iterator[dict[str, BaseProcess]]:
    """Start a process for each site, which writes `site.log`; none is left at the end. A site that fails ends the study."""
    from fedbo.sites.errors import SitesError

    # The fork server imports the package once for all of them.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "fedbo.sites.join", "fedbo.algorithms.fts", "httpx"])
    sites: dict[str, BaseProcess] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            if any(process.exitcode for process in sites.values()):
                return _thread.interrupt_main()

    try:
        for name, _, _ in SITES:
            sites[name] = context.Process(target=_join, args=(folder.resolve() / name,), name=name)
            sites[name].start()
        threading.Thread(target=watch, daemon=True).start()
        yield sites
    except KeyboardInterrupt:
        failed = [name for name, process in sites.items() if process.exitcode]
        if not failed:
            raise
        raise SitesError(f"the site '{failed[0]}' ended: {_told(folder, failed[0]).splitlines()[-1]}") from None
    finally:
        done.set()
        for process in sites.values():
            process.kill()
            process.join()


def _join(folder: Path) -> None:
    """Carry out `fedbo join` in the folder of a site, in a process of its own."""
    from fedbo.sites.commands import join
    from fedbo.sites.errors import SitesError

    os.chdir(folder)
    log = os.open("site.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        join(Path("approval.json"), "objective.py:response", patience=_PATIENCE)
    except Stop as stop:
        sys.exit(stop.code)
    except SitesError as error:
        sys.exit(str(error))


def _told(folder: Path, name: str) -> str:
    """Return what a site printed."""
    return (folder / name / "site.log").read_text(encoding="utf-8", errors="replace").strip() or "nothing"
