"""The common part of federations that are derived from another one."""

from __future__ import annotations

from dataclasses import dataclass

from fedbo.objectives.base import Federation, Metric, Parameter, reports_costs


@dataclass(frozen=True)
class DerivedFederation:
    """A federation derived from another one, with its parameters, its metric and its costs."""

    federation: Federation

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters of the federation."""
        return self.federation.parameters

    @property
    def metric(self) -> Metric:
        """Return the metric of the federation."""
        return self.federation.metric

    @property
    def costly(self) -> bool:
        """Return whether evaluations report their costs."""
        return reports_costs(self.federation)
