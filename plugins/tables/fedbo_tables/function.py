"""The function `tabulate` of `fedbo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedbo.call_arguments import Overrides, display_of, named_in_python, new_folder_of, overrides_of
from fedbo.settings import arguments as checks
from fedbo_tables.sources import source
from fedbo_tables.tabulation import TableRequest, tabulate_objective


def tabulate(
    objective: str | Path,
    *,
    overrides: Overrides = (),
    points: int = 4096,
    refine: int = 0,
    agents: Sequence[int] | None = None,
    seed: int | None = None,
    replicate: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Evaluate a federation at a design by every agent, for the objective `tabulated`; return the contents of `table.json`.

    `objective` is a federation's name, with `setting=value` as `overrides`, or a study file, with overrides of a study. The
    folder `out` (by default NAME.table) is new, or holds the same table, which is then resumed or extended. Raises ValueError
    for an invalid argument, RunError when evaluating failed, and KeyboardInterrupt after Ctrl-C. Finished evaluations are kept.
    """
    with named_in_python():
        _check_numbers(points, refine, agents, seed, replicate, workers)
        place, changes, name = new_folder_of(out), overrides_of(overrides), str(checks.path("objective", objective, "file"))
        origin, hosting = source(name, changes, seed, replicate)
        hosting = hosting if workers is None else hosting.model_copy(update={"workers": workers})
        request = TableRequest(points, refine, None if agents is None else tuple(agents))
        return tabulate_objective(origin, place or Path(f"{origin.name}.table"), request, hosting, display_of(progress))


def _check_numbers(points: Any, refine: Any, agents: Any, seed: Any, replicate: Any, workers: Any) -> None:
    """Check the numbers among the arguments of `tabulate`."""
    for name, value, least in (("points", points, 1), ("refine", refine, 0), ("replicate", replicate, 0)):
        checks.whole(name, value, least)
    for name, value in (("seed", seed), ("workers", workers)):
        if value is not None:
            checks.whole(name, value)
    if agents is not None and (isinstance(agents, str) or not isinstance(agents, Sequence)):
        raise checks.wrong("agents", agents, "must be a list of the numbers of agents")
    for agent in agents or ():
        checks.whole("agents", agent)
