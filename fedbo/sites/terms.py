"""The public terms of a study at sites, and the sizes, tasks, random streams and costs of messages that follow from them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedbo.actors.task import Task
from fedbo.algorithms.base import Declaration, LocallyPrivate, Private
from fedbo.algorithms.streams import Streams
from fedbo.execution.jobs import runs
from fedbo.objectives.sites import AtThisSite, Sites
from fedbo.privacy.gaussian import gaussian_epsilon
from fedbo.privacy.secure_aggregation import least_cohort
from fedbo.privacy.study_table import least_delta
from fedbo.settings.trust import UntrustedError
from fedbo.sites.errors import DocumentError
from fedbo.sites.mask_messages import MaskTerms
from fedbo.sites.policy import Share
from fedbo.sites.study_table import SitesTable
from fedbo.study.document import StudyError
from fedbo.study.files import distributions, names_files
from fedbo.study.study import Study, checked_study

COUNTED = 10**5  # steps that are asked one by one for a message, in some hundredths of a second; a budget may have 2e12
_OWN = ("hosting", "recovery", "network", "availability", "fault")  # which concern the coordinator alone
_MOST_ROWS = 2**16  # of a report of an algorithm that does not declare how many points it asks for


@dataclass(slots=True, unsafe_hash=True)
class SiteStreams(Streams):
    """Streams whose key is secret, but for draws that all agents share: those have the study's seed and replicate."""

    public_seed: int = 0
    public_replicate: int = 0

    def shared(self, purpose: str) -> np.random.Generator:
        """Return the generator that every agent of the study obtains for this purpose."""
        return Streams(self.public_seed, self.public_replicate, scope=self.scope).rng(purpose)

    # Overridden: those of `Streams` return plain `Streams` and would lose the public seed.
    def at(self, step: int) -> Streams:
        """Return the same owner's streams at another step."""
        return replace(self, step=step)

    def of(self, owner: int) -> Streams:
        """Return another owner's streams at the same step."""
        return replace(self, owner=owner)

    def within(self, scope: str) -> Streams:
        """Return the same owner's streams for another task."""
        return replace(self, scope=scope)


def site_streams(public: Streams, agent: int, secret: bytes) -> SiteStreams:
    """Return the streams of a site with a secret `(32,)`: both words of their key, 128 bits, are hashes of it."""
    named = f"{public.seed}/{public.replicate}/{agent}".encode()
    words = np.frombuffer(hashlib.blake2b(named, key=secret, digest_size=16).digest(), "<u8")
    return SiteStreams(
        int(words[0]), int(words[1]), scope=public.scope, public_seed=public.seed, public_replicate=public.replicate
    )


class SyncTerms(NamedTuple):
    """The numbers that bound the body of a request and of an answer, and the numbers in a report.

    - `agents`, `dim`: the numbers of agents and of parameters.
    - `upload`, `download`: declarations of messages and of answers.
    - `share`: what sites release; `most_rows`: rows of a report.
    - `last_step`, `most_points`, `most_evaluations`: the last step of an agent, its points in one step, and all evaluations.
    - `letter`: bytes of the longest letter by which sites agree on masks, 0 without secure aggregation.
    """

    agents: int
    dim: int
    upload: Declaration | None
    download: Declaration | None
    share: Share
    most_rows: int
    last_step: int
    most_points: int
    most_evaluations: int
    letter: int = 0


def public_terms(study: Study) -> dict[str, Any]:
    """Return the public terms of a study as plain JSON, with the versions of its plug-ins; StudyError if it is not at sites."""
    if not isinstance(study.federation(), Sites):
        raise StudyError(f"[objective] name = '{study.objective.name}': is not at sites; set name = \"sites\"")
    document = {key: value for key, value in study.document().items() if key not in _OWN}
    document["timing"] = {"clock": "wall"}
    versions = {"plugins": found} if (found := distributions(study)) else {}
    return {"study": study.study.name, "agents": study.federation().n_agents, "document": document, **versions}


def load_terms(terms: Mapping[str, Any]) -> Study:
    """Return the study of public terms; DocumentError where they are invalid.

    No file is read for it, and no code is imported but that of plug-ins which are installed here.
    """
    document = terms.get("document")
    objective = document.get("objective") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(objective, dict) or objective.get("name") != "sites":
        raise DocumentError("the terms are not those of a study of sites; ask for the approval again")
    if names_files(document):
        raise DocumentError("the terms name files or code of this machine, which is refused; ask for other terms")
    try:
        study = checked_study(document, Path("/"), derived=True)
    except UntrustedError as error:
        raise DocumentError(f"the terms name code ('{error.place}'), which is refused; ask for other terms") from None
    except StudyError as error:
        words = (error.lines or "; ".join(map(str, error.faults))).splitlines()[0]
        raise DocumentError(f"the terms are invalid: {words}") from None
    if public_terms(study) != terms:
        raise DocumentError("the terms leave out settings, or are of another version of fedbo or a plug-in; install that one")
    return study


def sync_terms(study: Study) -> SyncTerms:
    """Return what decides the largest body of a request and of an answer, and the largest numbers in a report."""
    table = study.algorithm[0]
    algorithm, problem = table.make(), study.problem_of(table)
    queries, initial = algorithm.queries, problem.initial
    points = max(problem.pulls or _MOST_ROWS if queries is None else queries, initial)
    last = _last(queries, problem.iterations, problem.pulls)
    rows = min(_MOST_ROWS, points * (1 + study.evaluation.make().retries))
    return SyncTerms(
        agents=problem.n_agents,
        dim=problem.dim,
        upload=algorithm.upload(problem),
        download=algorithm.download(problem),
        share=asked_of(study).share,
        most_rows=rows,
        last_step=last,
        most_points=points,
        most_evaluations=max(problem.pulls or initial + last * (queries or points), initial),
        letter=0 if (masks := mask_terms(study, b"")) is None else masks.most_bytes,
    )


def mask_terms(study: Study, digest: bytes) -> MaskTerms | None:
    """Return what sites and coordinator know of masks beforehand; None without secure aggregation."""
    if study.privacy.secure_aggregation is None:
        return None
    algorithm, problem = study.algorithm[0].make(), study.problem_of(study.algorithm[0])
    assert isinstance(algorithm, Private), "the study was checked"
    (declared,) = (algorithm.upload(problem) or {}).values()
    assert declared.shape[0] is not None, "masked messages are of one length"
    length = algorithm.mechanism(problem).blocks * declared.shape[0]
    settings = study.privacy.secure_aggregation.make()
    least = least_cohort(settings, algorithm, problem, study.exchange.make())
    return MaskTerms(settings, digest, problem.n_agents, length, least)


def last_step(study: Study, agent: int) -> int:
    """Return the last step of an agent's budget; twice as many where evaluations are counted, and a step may go by without."""
    (run,) = runs(study, Path())
    _, iterations, pulls = run.task.budget_of(agent)
    return _last(run.task.algorithm.queries, iterations, pulls)


def _last(queries: int | None, iterations: int, pulls: int) -> int:
    return 2 * pulls if pulls and queries is None else iterations


def asked_of(study: Study) -> SitesTable:
    """Return the table [sites] of a study of sites."""
    found: SitesTable | None = study.sites
    assert found is not None, "the study has no sites"
    return found


def site_task(study: Study, agent: int, own: Any, secret: bytes) -> Task:
    """Return the task of a site's agent: the study's, with the site's objective and draws that only the site can repeat."""
    (run,) = runs(study, Path())
    federation = study.federation()
    assert isinstance(federation, Sites)
    streams = run.task.streams if asked_of(study).streams == "study" else site_streams(run.task.streams, agent, secret)
    return replace(run.task, federation=AtThisSite(federation, own), streams=streams)


class MessageCost(NamedTuple):
    """The most epsilon that some messages cost, at `delta`: 0 where their sender hides them itself."""

    epsilon: float
    delta: float = 0.0

    def __str__(self) -> str:
        """Return it in words."""
        return f"epsilon {self.epsilon:.4g}" + (f" at delta {self.delta:.3g}" if self.delta else "")


def most_cost(study: Study, agent: int) -> MessageCost | None:
    """Return the most that all messages of an agent can cost; None for messages without noise.

    Beyond `COUNTED` steps each one counts as one with a message.
    """
    sends, steps = study.algorithm[0].make().sends, last_step(study, agent) + 1
    return cost_of(study, sum(map(sends, range(min(steps, COUNTED)))) + max(0, steps - COUNTED))


def cost_of(study: Study, messages: int) -> MessageCost | None:
    """Return the most that so many messages of a site cost, each of another step; None for messages without noise.

    Those that the site hides itself cost what their method discloses. Where the coordinator adds the noise each of them is in
    one release at most, and nothing is gained from sampling, as in `privacy.parquet`. A study whose deltas are weaker than the
    default ones is charged at these.
    """
    algorithm, problem = study.algorithm[0].make(), study.problem_of(study.algorithm[0])
    if isinstance(algorithm, LocallyPrivate) and algorithm.hides:
        declared = algorithm.upload(problem) or {}  # a message discloses as much whatever it holds
        blank = {name: np.zeros([size or 1 for size in one.shape], one.dtype) for name, one in declared.items()}
        found = algorithm.disclosure(algorithm.server_init(problem), blank)
        assert found is not None, "its messages are hidden"
        return MessageCost(found.epsilon * (messages if found.mechanism == "exponential" else min(1, messages)))
    noise = algorithm.mechanism(problem).noise if isinstance(algorithm, Private) else 0.0
    if not noise:
        return None
    deltas, terms = study.privacy.deltas or (), study.privacy
    delta = min(*deltas, least_delta(problem.n_agents), 1.0)
    most = terms.epsilon_max if terms.epsilon_max is not None and delta in deltas else math.inf
    return MessageCost(min(float(gaussian_epsilon(np.array([math.sqrt(messages) / noise]), delta)[0]), most), delta)
