"""The privacy that a study will spend, estimated before it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from fedbo.algorithms.base import Algorithm, Private
from fedbo.coordinator.privacy.accounting import epsilon
from fedbo.coordinator.privacy.aggregator import why_not_amplified
from fedbo.coordinator.privacy.charge import PrivacyCharge
from fedbo.coordinator.privacy.ledger import inverse
from fedbo.coordinator.privacy.sensitivity import sensitivities
from fedbo.study.environment.models import environment_of
from fedbo.study.study import Study


@dataclass(frozen=True, slots=True)
class PrivacyEstimate:
    """The epsilon that one algorithm will spend at each delta, if every agent takes part in every release that it can.

    `whole` says why there will be no gain from sampling; it is empty where there will be.
    """

    cell: str
    algorithm: str
    deltas: tuple[float, ...]
    epsilon: tuple[float, ...]
    whole: str


def privacy_estimates(study: Study) -> list[PrivacyEstimate]:
    """Reckon every private algorithm in every cell."""
    return [
        _estimate(cell.study, cell.title, table.title, made)
        for cell in study.cells()
        for table in cell.study.algorithm
        if isinstance(made := table.make(), Private) and isinstance(made, Algorithm)
    ]


def _estimate(study: Study, cell: str, label: str, algorithm: Private) -> PrivacyEstimate:
    federation, problem = study.federation(), study.problem()
    iterations = problem.iterations
    mechanism, terms = algorithm.mechanism(problem), study.privacy
    masked = terms.secure_aggregation is not None
    whole = why_not_amplified(mechanism, study.exchange.make(), environment_of(study).is_real_time, masked)
    assert isinstance(algorithm, Algorithm)
    releases = sum(algorithm.sends(step) for step in range(iterations))
    norms = [float(sensitivities(mechanism, algorithm.weights(problem, number)).max()) for number in range(releases)]
    fixed = mechanism.sampling == "fixed" and not whole
    share, population = (1.0, 0) if whole else (mechanism.share, federation.n_agents if fixed else 0)
    charges = Counter(PrivacyCharge(share, inverse(norm), "fixed" if fixed else "poisson", population) for norm in norms)
    deltas = terms.deltas or ()
    found = tuple(epsilon(charges, delta, "rdp" if fixed else "pld") for delta in deltas)
    if terms.epsilon_max is not None and found and found[0] > terms.epsilon_max and mechanism.noise:
        found = (terms.epsilon_max, *(float("nan") for _ in found[1:]))
    return PrivacyEstimate(cell, label, deltas, found, whole)
