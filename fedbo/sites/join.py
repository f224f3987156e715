"""A site of a study: what it needs is its approval, its key, its policy and its objective; nothing listens here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from fedbo.algorithms.reveals import revealed_by
from fedbo.objectives.base import Objective
from fedbo.settings import arguments
from fedbo.sites.certificates import client_context
from fedbo.sites.client import SiteClient
from fedbo.sites.documents import Approval
from fedbo.sites.folders import SiteFolder
from fedbo.sites.terms import asked_of, load_terms, sync_terms
from fedbo.sites.work import SiteSummary, SiteWork

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
    policy.admit(approved, asked_of(study).share, revealed_by(study.algorithm[0].make()))
    runs = site.run_folder(approved)
    with closing(site.audit(approved)) as audit:
        work = SiteWork(study, approved.agent, objective, runs, policy.evaluations, isolate)
        context = client_context(approved.trust)
        client = SiteClient(runs, key, approved, sync_terms(study), audit, context, patience)
        client.start()
        try:
            return work.run(client)
        finally:
            client.close()
