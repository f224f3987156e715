"""The command `fedbo doctor`: the state of this installation, and remedies."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer
from packaging.requirements import Requirement

from fedbo.commands.arguments import FAILED, Format, Printed, Stop, print_json
from fedbo.settings.version import Finding, fedbo_version, requirements

LEAST_MEMORY = 2 * 2**30  # bytes, for a coordinator, two hosts and Ray


def doctor(
    address: Annotated[str | None, typer.Option(help="Check each host of this Ray cluster too: auto or HOST:PORT.")] = None,
    printed: Printed = Format.text,
) -> None:
    """Check Ray, packages, compiled arithmetic, data sets, plug-ins, cores and memory; exit with 1 if something is broken.

    Each host of a cluster needs the versions of this machine, its data sets, free memory, and write access to this folder.
    """
    from fedbo.figures.reports.tables import console, health_table

    found = [*_packages(), *_machine(), _compiled(), *_data(), *_plugins()]
    if address is not None:
        found += _hosts(address)
    if printed is Format.json:
        print_json({"findings": [one._asdict() for one in found]})
    else:
        console().print(health_table([one._asdict() for one in found]))
    if any(one.state == "broken" for one in found):
        raise Stop(FAILED)


def _hosts(address: str) -> Iterator[Finding]:
    """Check each host of a cluster against this machine."""
    from fedbo.execution.cluster import lacking

    here = _shortcomings()
    for host, faults in lacking(address, Path.cwd(), _shortcomings):
        lacks = [fault for fault in faults if fault not in here]
        yield Finding(f"host {host}", "broken" if lacks else "ok", "; ".join(lacks) or "has what this machine has")


def _shortcomings() -> list[str]:
    """List what this host lacks, for the machine that asks."""
    wrong = (each for each in (*_machine(), *_data(), *_plugins()) if each.state != "ok")
    return [f"{each.what}: {each.state}" for each in wrong]


def _packages() -> Iterator[Finding]:
    """Check Python, all required packages, and those of extras."""
    yield Finding("fedbo", "ok", fedbo_version())
    old = sys.version_info < (3, 11)
    yield Finding("python", "broken" if old else "ok", platform.python_version(), "install Python 3.11 or later" if old else "")
    needed, extras = _declared()
    missing, old_ones = _lacking(needed)
    wrong = ", ".join([*missing, *old_ones])
    remedy = f"pip install {' '.join(map(repr, [*missing, *old_ones]))}" if wrong else ""
    yield Finding("packages", "broken" if wrong else "ok", wrong or f"all {len(needed)} required packages", remedy)
    for extra, packages in extras.items():
        lacking = [*_lacking(packages)[0], *_lacking(packages)[1]]
        remedy = f"optional: pip install {' '.join(map(repr, lacking))}" if lacking else ""
        yield Finding(f"extra {extra}", "missing" if lacking else "ok", ", ".join(lacking or packages), remedy)


def _declared() -> tuple[list[str], dict[str, list[str]]]:
    """List the requirements of the package, and those of its extras except for development."""
    needed: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in requirements():
        what, _, marker = line.partition(";")
        extra = marker.partition("extra ==")[2].strip().strip("'\"")
        if extra not in ("", "dev"):
            extras.setdefault(extra, []).append(what.strip())
        elif not extra:
            needed.append(what.strip())
    return needed, extras


def _lacking(requirements: list[str]) -> tuple[list[str], list[str]]:
    """List the requirements that are missing, or lack parts of an extra, and those installed in an older version."""
    missing, old = [], []
    for line in requirements:
        asked = Requirement(line)
        try:
            if not asked.specifier.contains(version(asked.name), prereleases=True):
                old.append(line)
            elif any(_lacking(_of_extras(asked))):
                missing.append(line)
        except PackageNotFoundError:
            missing.append(line)
    return missing, old


def _of_extras(asked: Requirement) -> list[str]:
    """List what an installed package requires for the extras that are asked, such as `tune` of `ray[tune]`."""
    found = []
    for line in requires(asked.name) or ():
        (bare, marker) = line.partition(";")[0], Requirement(line).marker
        if marker is not None and any(marker.evaluate({"extra": extra}) for extra in asked.extras):
            found.append(bare.strip())
    return found


def _machine() -> Iterator[Finding]:
    """Check cores, memory and the disk under this folder."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Finding("cores", "ok", str(cores))
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        scarce = free < LEAST_MEMORY
        remedy = 'close other programs, or set [hosting] kind = "inline"' if scarce else ""
        yield Finding("memory", "missing" if scarce else "ok", f"{free / 2**30:.1f} GiB free", remedy)
    room = shutil.disk_usage(".").free
    yield Finding(
        "disk",
        "ok" if room > 2**30 else "missing",
        f"{room / 2**30:.1f} GiB free here",
        "" if room > 2**30 else "free some disk space",
    )


def _compiled() -> Finding:
    """Check whether the compiled arithmetic is in its cache, so that the first decision does not wait for it."""
    from pathlib import Path

    import fedbo.surrogates.compiled as compiled

    folder = Path(str(compiled.__file__)).parent / "__pycache__"
    count = sum(1 for _ in folder.glob("*.nbi"))
    remedy = "" if count else "run once, for a minute: python -m fedbo.execution.compiling"
    return Finding("compiled arithmetic", "ok" if count else "missing", f"{count} cached routines", remedy)


def _data() -> Iterator[Finding]:
    from fedbo.objectives.datasets.data import inventory

    for row in inventory():
        state = {"found": "ok", "damaged": "broken"}.get(row.state, "missing")
        remedy = "" if state == "ok" else "fetch it again" if state == "broken" else "needed only by objectives that use it"
        yield Finding(f"data {row.name}", state, str(row.where or "not on this machine"), remedy)


def _plugins() -> Iterator[Finding]:
    from fedbo.settings.plugins import GROUPS, installed
    from fedbo.study.listing import broken

    wrong = broken()
    for line in wrong:
        yield Finding("plug-in", "broken", line)
    sources = sorted({plugin.origin for group in GROUPS for plugin in installed(group)})
    yield Finding("plug-ins", "ok", ", ".join(sources) or "none")
