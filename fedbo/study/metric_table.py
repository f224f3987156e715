"""[[metric]]: the metrics of an evaluation that are objectives or have limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fedbo.settings.errors import SettingError
from fedbo.study.base import Name, Table

Numbers = dict[str, float]  # by the name of a metric


class MetricTable(Table):
    """[[metric]]: a metric that evaluations return, as an objective with a `mode`, with limits, or both.

    The first objective is the metric of the objective's own values. Other numbers that evaluations return are kept as well, and
    need no table.
    """

    name: Name
    """Its name among the numbers that an evaluation returns."""
    mode: Literal["min", "max"] | None = None
    """Makes it an objective to be minimised or maximised; there are at most four."""
    reference: float | None = None
    """Native value from which hypervolume is measured; required with several objectives."""
    weight: Annotated[float, Field(gt=0)] | None = None
    """Importance beside the other objectives. Default: 1."""
    at_most: float | None = None
    """Upper limit of feasible evaluations."""
    at_least: float | None = None
    """Lower limit of feasible evaluations."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := list(self._faults()):
            raise PydanticCustomError("settings", "invalid settings", {"faults": faults})
        return self

    def _faults(self) -> Iterator[SettingError]:
        low, high = self.at_least, self.at_most
        if self.mode is None and low is None and high is None:
            remedy = 'is neither an objective nor limited; add mode = "min" or "max", at_most or at_least, or remove the table'
            yield SettingError(("name",), remedy)
        if low is not None and high is not None and low > high:
            yield SettingError(("at_least",), f"contradicts at_most = {high:g}; set at most that")
        for key in ("reference", "weight"):
            if self.mode is None and getattr(self, key) is not None:
                yield SettingError((key,), f'applies only to an objective; remove it, or add mode = "{_MODE[high is None]}"')
        if self.reference is None:
            return
        beyond = low if self.mode == "min" else high if self.mode == "max" else None
        if beyond is not None and (beyond >= self.reference if self.mode == "min" else beyond <= self.reference):
            key, side = ("at_least", "above") if self.mode == "min" else ("at_most", "below")
            remedy = f"is not reached by any feasible evaluation, since {key} = {beyond:g}; set it {side} that limit"
            yield SettingError(("reference",), remedy)


_MODE = {False: "min", True: "max"}
