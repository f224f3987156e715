"""The promise of studies on a Ray whose calls fail and are delayed: the bytes of one process, or an error that a resume mends.

Ray fails its own requests, replies and messages in flight (`RAY_testing_rpc_failure`) and delays what its processes handle
(`RAY_testing_asio_delay_us`). Both are read when Ray starts, so `trials` runs this module in processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import fedbo
from fedbo.actors.remote import HostLost, RayHosts
from fedbo.execution.replay import replay
from fedbo.study.study import Study
from tests.random_studies.carrying_out import LEGAL_NAMES, Hostings, begin_or_go_on, differences, hosted, tables
from tests.random_studies.chaos.real_time import draw_real_time_study
from tests.random_studies.invariants import violations
from tests.random_studies.promises import start_ray
from tests.random_studies.studies import draw_study

# Calls that studies rest on. Where all calls fail, Ray does not always start, and some of its processes end themselves.
TASK = "CoreWorkerService.grpc_client.PushTask"
CALLS = (
    TASK,
    *(f"CoreWorkerService.grpc_client.{call}" for call in ("GetObjectStatus", "KillActor", "WaitForActorRefDeleted")),
    *(f"NodeManagerService.grpc_client.{call}" for call in ("KillLocalActor", "PinObjectIDs", "RequestWorkerLease")),
    *(f"NodeManagerService.grpc_client.{call}" for call in ("CancelWorkerLease", "ReturnWorkerLease")),
    *(f"ray::rpc::ActorInfoGcsService.grpc_client.{call}" for call in ("CreateActor", "GetActorInfo", "KillActorViaGcs")),
    *(f"ray::rpc::ActorInfoGcsService.grpc_client.{call}" for call in ("RegisterActor", "ReportActorOutOfScope")),
    *(f"ray::rpc::ControlPlanePubSubGcsService.grpc_client.GcsSubscriber{call}" for call in ("CommandBatch", "Poll")),
    *(f"ray::rpc::WorkerInfoGcsService.grpc_client.{call}" for call in ("AddWorkerInfo", "ReportWorkerFailure")),
    "ray::rpc::TaskInfoGcsService.grpc_client.AddTaskEventData",
)
# Per cent of these calls that fail, in each process for ever.
FAILURES = {"num_failures": -1, "req_failure_prob": 3, "resp_failure_prob": 3, "in_flight_failure_prob": 2}
# A host whose task fails is lost, and all hosts start anew, which takes seconds: with more losses no study ends in minutes.
TASK_FAILURES = {**FAILURES, "req_failure_prob": 1, "resp_failure_prob": 1, "in_flight_failure_prob": 1}
# Microseconds, drawn evenly, by which what these calls ask for is delayed.
DELAYS = {
    "CoreWorkerService.grpc_server.PushTask": (0, 20_000),
    "NodeManagerService.grpc_server.RequestWorkerLease": (0, 50_000),
    "ActorInfoGcsService.grpc_server.RegisterActor": (0, 50_000),
    "ActorInfoGcsService.grpc_server.CreateActor": (0, 50_000),
}
RETRIES = 50  # milliseconds after which Ray repeats a call that failed, in place of a second
EVENTS = 20  # of the core between two snapshots
RESUMES = 5  # of a study that ended with an error
REAL_TIME = 10  # one study of so many is in real time, in which each process that is lost takes seconds to start again


class Way(NamedTuple):
    """How a study is hosted.

    kind: of hosting.
    workers: of that hosting.
    runs: whether `fedbo.run` starts its coordinator on Ray, or this process coordinates hosts that serve many studies.
    channels: whether hosts are called through channels, or over Ray as on another machine.
    """

    kind: str
    workers: int | None
    runs: bool
    channels: bool

    def __str__(self) -> str:
        calls = "fedbo.run" if self.runs else "channels" if self.channels else "over Ray"
        return f"{self.kind}{f' {self.workers}' if self.workers else ''}, {calls}"


WAYS = (
    Way("packed", 2, runs=False, channels=False),
    Way("dedicated", None, runs=False, channels=False),
    Way("packed", 2, runs=True, channels=True),
    Way("packed", 2, runs=False, channels=True),
    Way("inline", 2, runs=True, channels=True),
)


class ChaosResult(NamedTuple):
    """What became of one study.

    seed: of the study.
    way: how it was hosted.
    broken: what it broke.
    resumes: how often it ended with an error and was resumed.
    seconds: how long it took.
    """

    seed: int
    way: str
    broken: list[str]
    resumes: int
    seconds: float


def chaotic_environment() -> dict[str, str]:
    """Return the environment in which Ray fails and delays its own calls."""
    delays = ",".join(f"{call}={least}:{most}" for call, (least, most) in DELAYS.items())
    return {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_BACKEND_LOG_LEVEL": "error",
        "RAY_worker_niceness": "0",  # else hosts hardly run beside other work
        "RAY_testing_rpc_failure": json.dumps({**dict.fromkeys(CALLS, FAILURES), TASK: TASK_FAILURES}),
        "RAY_testing_asio_delay_us": delays,
        "RAY_agent_register_timeout_ms": "300000",  # in which Ray's own agents must start, also on a busy machine
        "RAY_grpc_client_check_connection_status_interval_milliseconds": str(RETRIES),
    }


def try_seed(seed: int, folder: Path, hostings: Hostings) -> ChaosResult:
    """Run the study of a seed on the Ray of this process, or resume it where an earlier process was ended."""
    begun = time.monotonic()
    folder.mkdir(exist_ok=True)
    if seed % REAL_TIME == 7:
        way, (broken, resumes) = "real time", _broken_in_real_time(draw_real_time_study(seed), folder / "run")
    else:
        chosen = WAYS[seed % len(WAYS)]
        way, (broken, resumes) = str(chosen), _broken_in_virtual_time(seed, chosen, folder, hostings)
    return ChaosResult(seed, way, broken, resumes, round(time.monotonic() - begun, 1))


def _broken_in_real_time(study: Study, directory: Path) -> tuple[list[str], int]:
    """List the laws that a study in real time breaks, and count its resumes; no other run has the same bytes."""
    error, resumes = _run(study, directory)
    if error:
        return [] if error.startswith(LEGAL_NAMES) else [error], resumes
    again = replay(directory, verify=True, trust=True)
    return violations(study, directory) + ([] if again.same else [f"the replay: {again.difference}"]), resumes


def _broken_in_virtual_time(seed: int, way: Way, folder: Path, hostings: Hostings) -> tuple[list[str], int]:
    """Compare the tables of a study on Ray with those of one process, and count its resumes."""
    shutil.rmtree(folder / "files", ignore_errors=True)
    (folder / "files").mkdir()
    study = draw_study(seed, folder / "files")[1]
    alone = _coordinate(hosted(study, "inline"), folder / "alone", hostings)[0]
    with _channels(way.channels):
        there = _saved_often(hosted(study, way.kind, way.workers))
        error, resumes = _run(there, folder / "run") if way.runs else _coordinate(there, folder / "run", hostings)
    if alone or error:  # tables of a study that ends by its own error depend on how far each agent was
        same = bool(alone) and (bool(error) if not way.runs else error.startswith(LEGAL_NAMES))
        return [] if same else [f"{way}: ended with {error!r}, in one process with {alone!r}"], resumes
    return differences(tables(folder / "alone"), tables(folder / "run"), str(way)), resumes


def _saved_often(study: Study) -> Study:
    """Return the study with snapshots so close that a run proceeds although every few seconds a host is lost."""
    return study.model_copy(update={"recovery": study.recovery.model_copy(update={"events": EVENTS})})


def _run(study: Study, directory: Path) -> tuple[str, int]:
    """Run a study and resume it after each error; return the error that stays, and the number of resumes."""
    said = ""
    for attempt in range(RESUMES + 1):
        try:
            begin_or_go_on(study, directory)
        except fedbo.errors.RunError as error:
            said = f"{type(error.__cause__).__name__}: {error}"
            if said.startswith(LEGAL_NAMES) or "\n" in str(error):
                return said, attempt
        else:
            return "", attempt
    return f"after {RESUMES} resumes: {said}", RESUMES


def _coordinate(study: Study, directory: Path, hostings: Hostings) -> tuple[str, int]:
    """Coordinate a study in this process, again after each loss of its hosts that is told; return as `_run` does."""
    for attempt in range(RESUMES):
        try:
            return hostings.carry_out(study, directory), attempt
        except HostLost:
            continue
    return hostings.carry_out(study, directory), RESUMES


@contextmanager
def _channels(there: bool) -> Iterator[None]:
    """Call hosts over Ray alone, as on another machine, where there shall be no channels."""
    connect = RayHosts._connect
    if not there:
        RayHosts._connect = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        RayHosts._connect = connect  # type: ignore[method-assign]


def main() -> None:
    """Try studies of consecutive seeds in a room, and print one line of JSON for each."""
    first, count, room = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    start_ray()
    print("started", flush=True)
    hostings = Hostings()
    for seed in range(first, first + count):
        folder = room / str(seed)
        try:
            result = try_seed(seed, folder, hostings)
        except Exception as error:  # what is neither the study's bytes nor an error that a user is told
            result = ChaosResult(seed, "", [f"{type(error).__name__}: {str(error)[:500]}"], 0, 0.0)
        shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
