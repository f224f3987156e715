"""The table [sites] of a study file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from fedbo.settings.errors import SettingError
from fedbo.study.base import RoomTable, Table


class SitesTable(Table, RoomTable):
    """[sites]: what the sites of a study release, whose draws they use, and when a silent one counts as away."""

    share: Literal["nothing", "scores", "observations"] = "nothing"
    """Data that sites release besides messages: nothing, values and times, or also the points."""
    streams: Literal["secret", "study"] = "secret"
    """Seed of a site's own draws: a secret one, or that of the study."""
    lease: Annotated[float, Field(gt=0)] = 60.0
    """Seconds without a sign of life after which a site counts as away."""

    @classmethod
    def filled(cls, given: Self | None, study: Any, fill: Callable[..., Any]) -> Self | None:
        """Return the table of a study: one with all defaults where its objective is at sites."""
        return given or (cls() if study.objective.name == "sites" else None)

    @classmethod
    def combinations(cls, study: Any) -> Iterator[SettingError]:
        """Yield the errors in the combination of sites with the rest of their study."""
        from fedbo.sites.check_study import sites_combinations

        yield from sites_combinations(study)
