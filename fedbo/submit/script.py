"""The script of a submitted study: what it is made of, its text from a template, and its start."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fedbo.actors.storage import atomic
from fedbo.analysis.manifest import STUDY, read_manifest
from fedbo.settings.errors import ArgumentError
from fedbo.settings.shown import quoted
from fedbo.study.document import StudyError
from fedbo.study.paths import PRIVATE, DirectoryError, make_folder, usable
from fedbo.study.study import Study

FOUND = "found"  # how the files begin in which jobs note what they find
_FORMS = r"(?:(?P<days>\d+)-(?=\d))?(?P<rest>\d+(?::\d+){0,2})"
_OWNER = 0o600  # the mode of the token


@dataclass(frozen=True, slots=True)
class Submission:
    """A study to run in jobs.

    - `study`, `run`: the study, and the directory of its run.
    - `to`: "slurm", or "shell" for jobs one after the other on this machine.
    - `walltime`, `notice`: seconds of a job, and how many before its end it is told.
    - `nodes`: nodes of a job, of which a Ray cluster is made if there are several.
    - `array`: whether each replicate has jobs of its own.
    - `jobs`: the largest number of jobs, of each replicate with `array`.
    - `options`, `setup`: lines of `#SBATCH`, and commands before a job works.
    - `template`: a template in place of fedbo's own; it may extend `slurm.sh.jinja` or `shell.sh.jinja`.
    """

    study: Study
    run: Path
    to: str = "slurm"
    walltime: int = 3600
    notice: int = 120
    nodes: int = 1
    array: bool = False
    jobs: int = 100
    options: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    template: Path | None = None

    def __post_init__(self) -> None:
        """Raise StudyError or ArgumentError where no job could do this."""
        hosting = self.study.hosting
        if hosting.kind == "sites":
            raise StudyError("[hosting] kind = 'sites': the objectives are at sites; run the study with: fedbo serve STUDY")
        if not 0 < self.notice < self.walltime:
            raise ArgumentError(f"--notice = {self.notice} s: must be shorter than --walltime, {self.walltime} s; reduce it")
        if self.to == "shell" and (self.nodes > 1 or self.options):
            raise ArgumentError("--to shell uses this machine alone; leave --nodes and --option out")
        if self.nodes > 1 and hosting.kind == "inline" and not hosting.workers:
            remedy = "set --set hosting.workers=N, or --nodes 1"
            raise ArgumentError(f"--nodes = {self.nodes}: a study with [hosting] kind = 'inline' uses one node; {remedy}")
        if self.array and (self.study.timing.clock == "wall" or self.study.study.replicates < 2):
            raise ArgumentError(
                "--array: is for several replicates in virtual time, which need nothing of each other; leave it out"
            )

    @property
    def folder(self) -> Path:
        """Return the folder of the script, the study, the logs and the replicates."""
        return jobs_folder(self.run)

    @property
    def name(self) -> str:
        """Return the name of the jobs."""
        return re.sub(r"[^\w.-]+", "-", self.run.name)


def jobs_folder(run: Path) -> Path:
    """Return the folder of the jobs of a run, which is beside it."""
    return run.with_name(f"{run.name}.jobs")


def seconds_of(walltime: str) -> int:
    """Return the seconds of a time as SLURM writes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; ArgumentError for others."""
    found = re.fullmatch(_FORMS, walltime.strip())
    if found is None:
        raise ArgumentError(f"--walltime = '{walltime}': is no time; write minutes, M:S, H:M:S or D-H:M:S, for example 10:00")
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None or len(parts) == 3:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return 86400 * int(found["days"] or 0) + 3600 * hours + 60 * minutes + seconds
    minutes, seconds = [*parts, 0][:2]
    return 60 * minutes + seconds


def script(asked: Submission) -> str:
    """Return the text of the script; ArgumentError when a template cannot be used."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined, TemplateError

    own = asked.template
    loaders = [PackageLoader("fedbo", "submit"), *([FileSystemLoader(own.absolute().parent)] if own else [])]
    made = Environment(
        loader=ChoiceLoader(loaders),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["quote"] = lambda value: shlex.quote(str(value))
    try:
        template = made.get_template(f"{asked.to}.sh.jinja" if own is None else own.name)
        return template.render(
            asked=asked,
            folder=asked.folder.absolute(),
            here=Path.cwd(),
            run=asked.run.absolute(),
            python=sys.executable,
            replicates=asked.study.study.replicates if asked.array else 0,
        )
    except (TemplateError, OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"--template = '{own}': {type(error).__name__}: {error}; mend it, or leave it out") from None


def submit_script(asked: Submission) -> str:
    """Write the script with the study beside it, start it, and return the number of its job or process.

    Raises DirectoryError when the run has ended or is of another study, and ArgumentError when `sbatch` refuses the script.
    """
    text = script(asked)
    _check_run(asked)
    make_folder(asked.run.parent)
    make_folder(asked.folder, PRIVATE)
    path = asked.folder / "job.sh"
    with usable(path, "cannot be written"):
        for found in asked.folder.glob(f"{FOUND}*"):
            found.unlink()
        atomic.write_text(asked.folder / STUDY, asked.study.to_toml())
        atomic.write_text(path, text)
        if asked.nodes > 1:
            _write_token(asked.folder / "token")
    return _slurm(path) if asked.to == "slurm" else _shell(path)


def _check_run(asked: Submission) -> None:
    """Raise DirectoryError where the directory holds a run that has ended, or another one."""
    if not (asked.run / "manifest.json").is_file():
        return
    manifest = read_manifest(asked.run)
    if manifest["study_sha256"] != asked.study.digest():
        raise DirectoryError(f"'{asked.run}': holds a run of another study, or of this one before a change; use another --out")
    if manifest["status"] == "complete":
        raise DirectoryError(f"'{asked.run}': has ended; show it: fedbo show {quoted(asked.run)}")


def _write_token(path: Path) -> None:
    """Write a token without which no process joins or uses the Ray clusters of these jobs, unless there is one."""
    if not path.is_file():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, _OWNER), "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32))


def _slurm(path: Path) -> str:
    try:
        done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True)
    except FileNotFoundError:
        raise ArgumentError("--to slurm: there is no sbatch here; submit on a login node, or use --to shell") from None
    if done.returncode:
        raise ArgumentError(f"sbatch refused '{path}': {' '.join(done.stderr.split())}; see --option and --dry-run")
    return done.stdout.strip().partition(";")[0]


def _shell(path: Path) -> str:
    with open(path.with_name("log.txt"), "ab") as log:
        made = subprocess.Popen(
            ["bash", str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    made.returncode = 0  # it outlives this process, which does not wait for it
    return str(made.pid)
