"""A host process, which holds one or many agents of a run, and delays and stops them in real time."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from fedbo.actors.agent import HostedAgent
from fedbo.actors.columns import StepReports, StepRequests, joint_and_single, single_reports
from fedbo.actors.evaluation.evaluator import EvaluationError, Evaluator
from fedbo.actors.evaluation.learning import rehearse
from fedbo.actors.host_storage import HostConfig, HostStorage
from fedbo.actors.population import Commit, HostedAgents
from fedbo.actors.storage.printed import keep_printed
from fedbo.actors.storage.run_folder import Superseded
from fedbo.actors.task import DecisionSize, StepReport, StepRequest, Task, reported_stopping
from fedbo.actors.threads import blas_threads
from fedbo.objectives.typed_spaces.reports import EvaluationMoved
from fedbo.settings.own_code import CodeError, code_error, exits_as_errors, note_step
from fedbo.settings.rooms import optional
from fedbo.settings.trust import admit_same

_COLLECT, _WHOLE = 10_000, 100  # objects made between two times, and how rarely these are all
Commits = Sequence[Commit]
Reports = StepReports | list[StepReport]


class Host:
    """Some agents of a run in one process, which share nothing else. Without a config nothing is written."""

    leaves: Callable[[], bool] | None = None  # in a process that another one replaces, whether its node leaves

    def __init__(self) -> None:
        blas_threads().limit(limits=1)
        self.agents: HostedAgents
        self._storage: HostStorage | None = None
        self._evaluator: Evaluator | None = None
        self._begun = 0.0  # by the monotonic clock of this machine
        self._held: dict[int, float] = {}
        self._slow: dict[int, float] = {}
        self._halted = False

    @exits_as_errors
    def load(self, task: Task, numbers: Sequence[int], config: HostConfig | None = None, place: int = 0) -> int:
        """Prepare the agents of a run, in place of those of an earlier run; return this process's id.

        They start from the run's snapshot, if it has one, and in real time from each agent's last checkpoint.
        """
        admit_same(task.code)
        self._halted = False
        self._held, self._slow = {}, {}
        if self._storage is not None:
            with contextlib.suppress(FileNotFoundError):  # the files of a run that has ended may be gone
                self._storage.log.close()
        self._storage = storage = None if config is None else HostStorage(config, place, numbers)
        if storage is None or config is None:
            evaluator = Evaluator(task.policy, real=False)
        else:
            delay = self._delay if config.real else None
            evaluator = Evaluator(task.policy, config.real, storage.log, delay, config.recorded)
            evaluator.isolate(config.isolate, config.patience)
            evaluator.counted, evaluator.leaves = config.counted, self.leaves
            evaluator.stopping = reported_stopping(task, config.folder.path)
            if task.calls_user_code:
                evaluator.printed = partial(keep_printed, config.folder.path)
        self._end_process()
        self._evaluator = evaluator
        make, in_columns = partial(HostedAgent, task, clock=self.clock, evaluator=evaluator), optional("agents_in_columns")
        some = None if in_columns is None else in_columns(task, make, evaluator, self.clock, self.in_virtual_time)
        self.agents = HostedAgents(task, make) if some is None else some
        for number in numbers if config is not None and (config.real or config.recorded) else ():
            self.agents[number]  # in real time nothing that is done once shall take the time of a step
        if config is not None and config.real:
            deciding = [number for number in numbers if number in task.problem.targets]
            for number in deciding[:1]:  # the others import nothing more
                rehearse(task, number, self.agents[number].state.algorithm)
        if storage is None or config is None:
            return os.getpid()
        overlapping = optional("overlapping_evaluations") if task.policy.overlaps else None
        if overlapping is not None and (config.real or config.recorded):
            for agent in self.agents.objects.values():
                agent.overlapping = overlapping(agent, config, storage.log, self.clock, lambda: self._halted)
        storage.restore(self.agents)
        return os.getpid()

    @property
    def in_virtual_time(self) -> bool:
        """Return whether time is virtual, so that the duration of a step does not matter."""
        return self._storage is None or not (self._storage.config.real or self._storage.config.recorded)

    def collect_rarely(self) -> None:
        """Reduce how often this process collects garbage cycles, as the engine does; the state of agents contains none."""
        gc.set_threshold(_COLLECT, gc.get_threshold()[1], _WHOLE)

    def begin(self, epoch: float) -> None:
        """Start the clock of the study, which was 0 at `epoch`, in seconds of `time.time`. That clock is read only here."""
        self._begun = time.monotonic() - (time.time() - epoch)

    def reached(self) -> float:
        """Return the time at which the last evaluation ended that earlier processes logged for these agents."""
        return self._storage.log.reached if self._storage is not None else 0.0

    def clock(self) -> float:
        """Return the real time of the study, in seconds since its start."""
        return time.monotonic() - self._begun

    @exits_as_errors
    def decide(self, commits: Commits, request: StepRequest) -> DecisionSize:
        """Make an agent choose the points of a step, and return the size of its decision."""
        self.commit(commits)
        try:
            return self.agents[request.agent].decide(request)
        except Exception as error:
            note_step(error, request.agent, request.step)
            raise

    def work(self, commits: Commits, requests: Sequence[StepRequest]) -> list[StepReport]:
        """Run steps of several agents one after the other, for another process."""
        (reports,) = self.work_in_columns(commits, [list(requests)])
        return single_reports(reports) if isinstance(reports, StepReports) else reports

    @exits_as_errors
    def work_in_columns(self, commits: Commits, batches: Sequence[StepRequests | list[StepRequest]]) -> list[Reports]:
        """Run several batches of steps for another process; the log is flushed because the reports leave this one."""
        self.commit(commits)
        found = [self.carry_out(batch) for batch in batches]
        if self._storage is not None:
            with self._may_have_ended():
                self._storage.log.flush()
        return found

    @exits_as_errors
    def carry_out(self, requests: StepRequests | list[StepRequest]) -> Reports:
        """Run steps of different agents, or one by one, and return their reports; fewer where the run ends meanwhile."""
        reports: Reports = []
        with self._may_have_ended():
            several, alone = (None, requests) if isinstance(requests, list) else (requests, list[StepRequest]())
            # As columns where that serves: to different agents that may be in columns.
            if self.agents.serves and len({one.agent for one in alone}) == len(alone) > 0:
                several, alone = joint_and_single(alone)
            if several is not None and not self._halted:
                reports = self.agents.work(several, self._work)
            more = [report for report in map(self._work, alone) if report is not None]
            if more:
                reports = [*more, *(single_reports(reports) if isinstance(reports, StepReports) else reports)]
        return reports

    @contextlib.contextmanager
    def _may_have_ended(self) -> Iterator[None]:
        """Halt where files are missing because the run has ended."""
        try:
            yield
        except FileNotFoundError:  # an objective's own is an error of its evaluation
            if self._storage is None or self._storage.config.folder.is_current():
                raise
            self._halted = True

    def _work(self, request: StepRequest) -> StepReport | None:
        if self._halted:
            return None
        try:
            return self._step(request)
        except EvaluationMoved:
            os._exit(0)  # what counts is on disk, and whoever waits for this process starts another one
        except EvaluationError as error:
            failure: str | CodeError | None = str(error)
        except Exception as error:
            note_step(error, request.agent, request.step)
            if not self.in_virtual_time or (failure := code_error(error)) is None:
                raise
        return StepReport(request.agent, request.step, queries=0, payload=None, lease=request.lease, failure=failure)

    def _step(self, request: StepRequest) -> StepReport | None:
        agent, storage = self.agents[request.agent], self._storage
        real = storage is not None and storage.config.real
        if real and agent.uncommitted is not None and agent.uncommitted.report.step < request.step:  # else it was not heard of
            agent.commit(())
        report = agent.work(request)
        if report is not None and storage is not None and real:
            self._write(partial(storage.write_own, agent))
        return report

    def halt(self) -> None:
        """Stop after the evaluation in progress, and end all waiting. It may be called while agents work."""
        self._halted = True

    @exits_as_errors
    def keep_made(self, requests: Sequence[StepRequest]) -> None:
        """Keep the rows of the evaluations that steps had made before they were abandoned with their process."""
        assert self._evaluator is not None
        self._evaluator.over = True
        for request in requests:
            self.agents[request.agent].keep_made(request)

    def hold(self, agent: int, until: float) -> None:
        """Block an agent's results until this time of the study. It may be called while the agent works."""
        self._held[agent] = max(until, self._held.get(agent, 0.0))

    def slow(self, agent: int, factor: float) -> None:
        """Slow an agent's evaluations down by a factor. It may be called while the agent works."""
        self._slow[agent] = factor

    def _delay(self, agent: int, seconds: float) -> None:
        """Wait after an evaluation of so many seconds while its agent is slowed or held; a halt ends the wait."""
        until = time.monotonic() + (self._slow.get(agent, 1.0) - 1.0) * seconds
        while (left := until - time.monotonic()) > 0 and not self._halted:
            time.sleep(min(left, 0.05))
        while (left := self._held.get(agent, 0.0) - self.clock()) > 0 and not self._halted:
            time.sleep(min(left, 0.05))

    def commit(self, commits: Commits) -> None:
        """Commit the last steps of agents, whose states before them are discarded."""
        self.agents.commit(commits)

    def best(self) -> dict[int, float]:
        """Return the score of the best observation so far of every agent that has one, for the progress display."""
        return self.agents.best()

    def best_values(self) -> dict[int, float | None]:
        """Return the known noise-free optimum over the box of the objective of every agent created so far."""
        return self.agents.best_values()

    def snapshot(self, commits: Commits, number: int, whole: bool = True) -> dict[str, str]:
        """Write new rows and the committed states of the agents; return the names of the files with their SHA-256.

        Unless it is `whole`, the snapshot holds only the agents that have worked since the last one. A superseded host writes
        nothing and returns an empty dictionary.
        """
        assert self._storage is not None
        self.commit(commits)
        return self._write(partial(self._storage.write_snapshot, self.agents, number, whole))

    def write_checkpoints(self) -> None:
        """Write the checkpoint of each agent in real time."""
        assert self._storage is not None
        for agent in self.agents.objects.every():
            self._storage.write_own(agent)

    def finish(self, commits: Commits, number: int, kind: str, counted: Mapping[int, int] | None = None) -> dict[str, str]:
        """Write all remaining rows as tables of this kind, and in real time all evaluations; return file names with SHA-256.

        In real time `counted` maps each agent to its last step that the coordinator received. Later steps are not committed.
        """
        assert self._storage is not None
        self.commit(commits)
        for agent in self.agents.objects.every() if counted is not None else ():
            done = agent.uncommitted
            if done is not None and done.report.step <= (counted or {}).get(agent.number, -1):
                agent.commit(())
            agent.close()
        self.agents.unsettle()
        return self._write(partial(self._storage.write_rows, self.agents, number, False, kind))

    def close(self) -> None:
        """Close the evaluation log. Unwritten entries are no longer needed, or are computed again."""
        self._end_process()
        if self._storage is not None:
            self._storage.log.release()

    def _end_process(self) -> None:
        """End the separate process of evaluations, if there is one."""
        if self._evaluator is not None:
            self._evaluator.close()

    def _write(self, write: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Write to the run while this attempt is current; after another attempt took over, write nothing and halt."""
        assert self._storage is not None
        try:
            with self._storage.config.folder.while_current():
                return write()
        except Superseded:  # nobody waits for an answer: whoever asked is superseded too
            self._halted = True
            return {}
