"""A site of a study, which needs its approval, its key, its policy and its objective; nothing listens here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fedbo.algorithms.base import Private
from fedbo.algorithms.reveals import revealed_by
from fedbo.objectives.base import Objective
from fedbo.settings import arguments
from fedbo.sites.audit import AuditLog
from fedbo.sites.certificates import client_context
from fedbo.sites.client import SiteClient
from fedbo.sites.documents import Approval
from fedbo.sites.folders import SiteFolder
from fedbo.sites.keys import PrivateKey
from fedbo.sites.mask_work import SiteMasks
from fedbo.sites.outbox import Journal
from fedbo.sites.policy import SitePolicy
from fedbo.sites.terms import asked_of, load_terms, mask_terms, most_cost, sync_terms
from fedbo.sites.work import SiteSummary, SiteWork
from fedbo.study.study import Study

MASKS = "masks.journal"
PATIENCE = 24 * 3600.0  # seconds without an answer of the coordinator after which a site gives up


def join_study(
    approval: Path,
    objective: Callable[..., Any] | Objective,
    folder: Path | None = None,
    patience: float = PATIENCE,
    isolate: bool = False,
) -> SiteSummary:
    """Take part in the study of an approval with this objective until the study has ended.

    `folder` is the site's, by default that of the approval. Raises PolicyError where the site's policy does not admit the
    study, and SitesError where the coordinator refuses the site, or does not answer for `patience` seconds. A site that was
    killed, or ended for such a reason, goes on where it was when it joins again.
    """
    arguments.number("patience", patience, above=0.0)
    approved = Approval.read(approval)
    site = SiteFolder.of(approval, folder)
    key, policy, study = site.key(approved), site.policy(), load_terms(approved.terms)
    cost = most_cost(study, approved.agent)
    reveals = revealed_by(study.algorithm[0].make())
    policy.admit(approved, asked_of(study).share, reveals, None if cost is None else cost.epsilon)
    runs = site.run_folder(approved)
    with closing(site.audit(approved)) as audit, _masks(study, runs, approved, key, policy, audit) as masks:
        work = SiteWork(study, approved.agent, objective, runs, policy.evaluations, isolate, masks)
        context = client_context(approved.trust)
        client = SiteClient(runs, key, approved, sync_terms(study), audit, context, patience)
        client.on_letter = None if masks is None else masks.answer
        client.start()
        try:
            return work.run(client)
        finally:
            client.close()


@contextmanager
def _masks(
    study: Study, runs: Path, approved: Approval, key: PrivateKey, policy: SitePolicy, audit: AuditLog
) -> Iterator[SiteMasks | None]:
    """Return what masks the messages of a site; None for a study without secure aggregation."""
    terms, table = mask_terms(study, approved.digest), study.algorithm[0]
    algorithm = table.make()
    if terms is None or not isinstance(algorithm, Private):
        yield None
        return
    with closing(Journal(runs / MASKS)) as records:
        problem, refused = study.problem_of(table), audit.refused
        yield SiteMasks(terms, algorithm, problem, approved.agent, key, records, policy.admit_peers, refused)
