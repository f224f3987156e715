"""The commands `submit` and `job`: a study in jobs that end before it does."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbo.commands import arguments as options
from fedbo.commands.arguments import INTERRUPTED, Format, Stop, print_json, progress_display
from fedbo.commands.run import finish
from fedbo.settings.shown import quoted

if TYPE_CHECKING:
    from fedbo.study.study import Study

_HOSTS_PATIENCE = 120.0  # seconds that the nodes of a job have to start Ray


class Target(StrEnum):
    """Where jobs run."""

    slurm = "slurm"
    shell = "shell"


def submit(
    study: options.StudyFile,
    to: Annotated[
        Target, typer.Option(help="Where jobs run: under SLURM, or one after the other on this machine.")
    ] = Target.slurm,
    sets: options.Sets = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the results. Default: runs/STUDY.")] = None,
    walltime: Annotated[
        str, typer.Option(help="Longest time of a job, as SLURM writes it: minutes, M:S, H:M:S, D-H.")
    ] = "1:00:00",
    notice: Annotated[int, typer.Option(min=1, help="Seconds before its end at which a job stops.")] = 120,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of a job; several become a Ray cluster.")] = 1,
    array: Annotated[bool, typer.Option("--array", help="Run every replicate in jobs of its own.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Largest number of jobs, of each replicate with --array.")] = 100,
    option: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help='Option of sbatch, such as "--partition=long"; once or more.')
    ] = None,
    setup: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND", help='Command before the work, such as "module load python".')
    ] = None,
    template: Annotated[Path | None, typer.Option(help="Template of the script, in place of fedbo's own.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script, and write and start nothing.")] = False,
    printed: options.Printed = Format.text,
) -> None:
    """Run a study in jobs that end before it does: each goes on where the one before stopped or was killed.

    Repeat the command to continue after the last job.
    """
    from fedbo.study.study import load_study
    from fedbo.submit.script import Submission, script, seconds_of, submit_script

    checked = load_study(study, sets or [], trust=True)
    asked = Submission(
        study=checked,
        run=out or Path("runs") / study.stem,
        to=to.value,
        walltime=seconds_of(walltime),
        notice=notice,
        nodes=nodes,
        array=array,
        jobs=jobs,
        options=tuple(option or ()),
        setup=tuple(setup or ()),
        template=template,
    )
    if dry_run:
        print(script(asked), end="")
        return
    number = submit_script(asked)
    facts = {"job": number, "directory": str(asked.run), "script": str(asked.folder / "job.sh"), "logs": str(asked.folder)}
    if printed is Format.json:
        print_json(facts)
        return
    stop = f"scancel --name={asked.name}" if to is Target.slurm else f"kill {number}"
    print(f"submitted: {'job' if to is Target.slurm else 'process'} {number}; to stop it: {stop}")
    print(f"logs:      {asked.folder}\nresults:   {asked.run}; to look: fedbo watch {quoted(asked.run)}")


def job(
    study: options.StudyFile,
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of the results.", show_default=False)],
    replicate: Annotated[int | None, typer.Option(min=0, help="Carry out this replicate alone.")] = None,
    address: options.Address = None,
    hosts: Annotated[int, typer.Option(min=1, help="Hosts of the Ray cluster to wait for.")] = 1,
    printed: options.Printed = Format.text,
    quiet: options.Quiet = False,
) -> None:
    """Run or resume a study, as one of several jobs.

    The exit code is 0 once the study, or its replicate, has ended, 130 where another job can continue it, 1 if it failed, and 2
    for wrong input. SIGTERM, or a file `stop` in the directory of the results, ends the job with a snapshot.
    """
    from fedbo.execution.again import has_ended, run_again
    from fedbo.execution.cluster import Cluster, hosts_there
    from fedbo.execution.failures import RunError
    from fedbo.execution.head import HeadLostError
    from fedbo.study.files import distributions
    from fedbo.study.study import load_study
    from fedbo.submit.jobs import await_lock, check_progress, drop_replicates, run_replicate

    sets = [] if address is None else [f"hosting.address={json.dumps(address)}"]
    if hosts > 1:  # all have this very package, and in a wheel each job would compile its routines again
        sets.append('hosting.package="image"')
    checked = load_study(study, sets, trust=True, derived=True)
    hosting = _hosting(checked)
    cluster = Cluster(checked.hosting.address, checked.hosting.package, distributions(checked))
    progress = progress_display(quiet)
    await_lock(folder)
    if has_ended(folder, checked):  # figures may take longer than what was left of the job before
        drop_replicates(folder, checked)
        print(f"has ended; results: {folder}; for figures: fedbo report {quoted(folder)}")
        return
    check_progress(folder, replicate)
    try:
        with nullcontext() if hosts == 1 else hosts_there(cluster, hosts, _HOSTS_PATIENCE, _say):
            if replicate is None:
                finish(lambda: run_again(checked, folder, hosting, progress), printed, "another job")
            elif (result := run_replicate(checked, folder, replicate, hosting, progress)) is None:
                print(f"replicate {replicate} has ended; others have not")
            else:
                finish(lambda: result, printed)
    except RunError as error:
        if not isinstance(error.__cause__, HeadLostError):
            raise
        _say(str(error))
        raise Stop(INTERRUPTED) from None


def _hosting(study: Study) -> list[str]:
    """Return the hosting of a study as overrides for a run that began with another one."""
    found = {"address": "local", **study.hosting.model_dump(mode="json", exclude_none=True)}
    return [f"hosting.{key}={json.dumps(value)}" for key, value in found.items()]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
