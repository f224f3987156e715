"""What the messages of a site may cost by the terms of its study, and policies that allow no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedbo.algorithms.catalog import algorithms
from fedbo.algorithms.reveals import Reveals, revealed_by
from fedbo.privacy.estimates import privacy_estimates
from fedbo.privacy.public_export import export_public
from fedbo.sites.documents import SiteRequest
from fedbo.sites.errors import PolicyError
from fedbo.sites.folders import REQUEST, ServiceFolder, SiteFolder
from fedbo.sites.policy import TEMPLATE, SitePolicy
from fedbo.sites.terms import asked_of, cost_of, load_terms, most_cost, public_terms
from fedbo.study.document import StudyError
from fedbo.study.study import Study, load_study
from tests.sites.direct import World, sites_document
from tests.sites.test_remote_sites import AGENTS, BOX, QUADRATIC, objectives

SECURE = {"privacy": {"secure_noise": True}}


def study_of(algorithm: dict[str, Any], **tables: Any) -> Study:
    document = {**sites_document(BOX, 10), "sites": {}, "exchange": {"mode": "barrier"}, **tables}
    return load_terms(public_terms(load_study({**document, "algorithm": [algorithm]})))


def of_any_kind(name: str) -> Study | None:
    """Return a study of a method with the tables that it needs; None for one that sites cannot carry out."""
    for tables in ({}, SECURE, {"budget": {"pulls": 12}}, {"budget": {"pulls": 12}, "agents": {}}):
        try:
            return study_of({"name": name}, **tables)
        except StudyError:
            continue
    return None


def test_every_method_whose_messages_have_noise_has_a_cost_and_no_other() -> None:
    studies = {name: of_any_kind(name) for name in algorithms()}
    noisy = [name for name, study in studies.items() if study is not None and most_cost(study, 0) is not None]
    declared = [revealed_by(study.algorithm[0].make()) for study in studies.values() if study is not None]
    assert {"dp_fts", "dp_fts_de", "dp_fed_prior", "dp_share_best", "dp_fed_pne"} <= {*noisy}
    assert len(noisy) == declared.count(Reveals.NOISY_SUMS) and len(noisy) < len(declared)


def test_what_a_study_may_cost_is_a_sum_for_choices_and_the_largest_for_means() -> None:
    votes = study_of({"name": "dp_share_best", "every": 1, "epsilon": 0.5})
    assert most_cost(votes, 0) == cost_of(votes, 5) == (2.5, 0.0) and cost_of(votes, 2) == (1.0, 0.0)
    means = study_of({"name": "dp_fed_pne", "epsilon": 2.0}, budget={"pulls": 12}, agents={})
    assert most_cost(means, 0) == cost_of(means, 1) == (2.0, 0.0) and cost_of(means, 0) == (0.0, 0.0)


@pytest.mark.parametrize("noise", [0.5, 3.0])
def test_a_central_method_may_cost_what_validate_says_where_every_message_is_charged(noise: float) -> None:
    study = study_of({"name": "dp_fts", "noise_multiplier": noise}, exchange={"mode": "deadline"}, **SECURE)
    (estimate,), cost = privacy_estimates(study), most_cost(study, 3)
    assert cost is not None and estimate.bound == "at most"
    assert cost == pytest.approx((estimate.epsilon[-1], estimate.deltas[-1]), rel=1e-6)


def test_a_weak_delta_of_the_terms_and_a_budget_at_it_lower_no_cost() -> None:
    plain = most_cost(study_of({"name": "dp_fts"}, **SECURE), 0)
    weak = study_of({"name": "dp_fts"}, privacy={"secure_noise": True, "deltas": [0.9]})
    assert most_cost(weak, 0) == plain
    budget = study_of({"name": "dp_fts"}, privacy={"secure_noise": True, "epsilon_max": 3.0})
    assert most_cost(budget, 0) == (3.0, 1e-3)


WEAK: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"name": "dp_share_best", "every": 1, "epsilon": 500.0}, {}),
    ({"name": "dp_fed_pne", "epsilon": 1e12}, {"budget": {"pulls": 12}, "agents": {}}),
    ({"name": "dp_fts", "noise_multiplier": 1e-9}, SECURE),
    ({"name": "dp_fed_prior", "noise_multiplier": 1e-12}, SECURE),
]


@pytest.mark.parametrize(("algorithm", "tables"), WEAK, ids=[algorithm["name"] for algorithm, _ in WEAK])
def test_messages_with_next_to_no_noise_count_as_messages_without_any(
    algorithm: dict[str, Any], tables: dict[str, Any], tmp_path: Path
) -> None:
    study, site = study_of(algorithm, **tables), SiteFolder.create(tmp_path / "north", "north")
    service = ServiceFolder.create(tmp_path / "service", public_terms(study), "https://localhost:7443")
    approval, cost = service.approve(SiteRequest.read(site.path / REQUEST)), most_cost(study, 0)
    asked = (approval, asked_of(study).share, revealed_by(study.algorithm[0].make()).value)
    allowed = {"studies": (approval.fingerprint,)}
    assert cost is not None and site.policy().epsilon == SitePolicy().epsilon and "epsilon = 10.0" in TEMPLATE
    for reveals in ("noisy sums", "draws", "computable"):
        with pytest.raises(PolicyError, match=r"policy.toml: epsilon = 10, but the messages of this study may cost"):
            SitePolicy(**allowed, reveals=reveals).admit(*asked, cost.epsilon)
    SitePolicy(**allowed, reveals="observations").admit(*asked, cost.epsilon)
    SitePolicy(**allowed, reveals="noisy sums", epsilon=cost.epsilon).admit(*asked, cost.epsilon)


def test_votes_of_real_sites_are_secure_in_the_ledger_and_may_be_published(tmp_path: Path, monkeypatch: Any) -> None:
    """The ledger of each site, in its summary, is that of the coordinator."""
    monkeypatch.chdir(tmp_path)
    tables = {"sites": {}, "algorithm": [{"name": "dp_share_best", "every": 1, "epsilon": 0.5}]}
    world = World(sites_document(BOX, AGENTS, **tables), objectives("quadratic", 4, **QUADRATIC), tmp_path)
    result = world.run()
    assert {row["secure"] for row in result.privacy.to_pylist()} == {True}
    export_public(result, tmp_path / "public.json")
    spent = {row["agent"]: row["epsilon"][0] for row in result.spent.to_pylist()}
    costs = {agent: summary.cost for agent, summary in world.summaries.items()}
    assert {agent: cost.epsilon for agent, cost in costs.items() if cost is not None} == spent
