"""The table [privacy] of a study file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Self

from pydantic import Field

from fedbo.algorithms.base import LocallyPrivate, Private
from fedbo.privacy.gaussian import WEAK_DELTA
from fedbo.privacy.secure_aggregation import SecureAggregation
from fedbo.settings.errors import SettingError
from fedbo.study.base import Declared, RoomTable, Table
from fedbo.study.document import Loc, StudyError


class SecureAggregationTable(Declared):
    """[privacy.secure_aggregation]: how messages are masked, so that the coordinator learns only sums."""

    declared = SecureAggregation


class PrivacyTable(Table, RoomTable):
    """[privacy]: the deltas at which epsilon is reported, the budget at the smallest, the source of noise, and masks."""

    deltas: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], Field(strict=False, min_length=1)] | None = None
    """Deltas at which epsilon is reported. Default: see privacy."""
    epsilon_max: Annotated[float, Field(gt=0)] | None = None
    """Budget at the smallest delta; the release that would exceed it ends federation."""
    secure_noise: bool = False
    """Whether noise and coins come from the system's entropy; such a run cannot be repeated."""
    secure_aggregation: SecureAggregationTable | None = None
    """Masks on messages, so that the coordinator learns sums only."""

    always = True
    listed = {"secure_aggregation": SecureAggregation}

    @classmethod
    def filled(cls, given: Self | None, study: Any, fill: Callable[..., Any]) -> Self | None:
        """Fill in the settings of masks, if they are used, and deltas, if any algorithm is private.

        The paper's delta, N^-1.1, is omitted for few agents, where it is so large that releases cost almost nothing.
        """
        given = given or cls()
        if given.secure_aggregation is not None:
            masks = fill(given.secure_aggregation, "privacy", "secure_aggregation")
            given = given.model_copy(update={"secure_aggregation": masks})
        try:
            made = [table.make() for table in study.algorithm]
            private = any(isinstance(one, Private) or (isinstance(one, LocallyPrivate) and one.hides) for one in made)
            count = study.federation().n_agents
        except StudyError:  # told where they are filled in
            return given
        if given.deltas is not None or not private:
            return given
        least = least_delta(count)
        return given.model_copy(update={"deltas": (count**-1.1, least) if count**-1.1 <= WEAK_DELTA else (least,)})

    @classmethod
    def last_combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield errors for privacy settings that no algorithm of the study can satisfy, or that would break a guarantee."""
        from fedbo.privacy.check_study import privacy_asked

        yield from privacy_asked(study)

    @classmethod
    def method_combinations(cls, study: Any, number: int, algorithm: Any) -> Iterator[SettingError]:
        """Yield the errors in the combination with an algorithm, if its messages are private."""
        from fedbo.privacy.check_study import private_combinations

        yield from private_combinations(study, number, algorithm)

    @classmethod
    def on_messages(cls, study: Any) -> Iterator[Loc]:
        """Yield the places of its settings that concern messages."""
        if study.privacy.secure_aggregation is not None:
            yield ("privacy", "secure_aggregation")


def least_delta(agents: int) -> float:
    """Return the smallest delta at which epsilon is reported by default, of so many agents."""
    return min(1e-3, max(1e-9, 1 / agents**2))
