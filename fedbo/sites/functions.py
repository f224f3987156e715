"""The functions `serve` and `join` of `fedbo`. What they need may not be installed: it is imported when they are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbo.settings import arguments as checks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedbo.analysis.result import Result
    from fedbo.call_arguments import Overrides
    from fedbo.objectives.base import Objective
    from fedbo.sites.work import SiteSummary
    from fedbo.study.study import Study


def serve(
    study: str | Path | Mapping[str, Any] | Study,
    *,
    listen: str = "0.0.0.0:7443",
    service: str | Path | None = None,
    out: str | Path | None = None,
    overrides: Overrides = (),
    progress: bool = False,
) -> Result:
    """Serve a study to its sites until it has ended, and return its results; a study that was killed continues.

    - `study`: as in `run`, with the objective "sites".
    - `listen`: the address "HOST:PORT" at which the server listens.
    - `service`: the folder of keys, certificates and approvals, by default `STUDY.sites` beside a study file.
    - `out`: the directory of the results, by default `run` in that folder.

    The study begins once every site has joined. Raises SitesError when the sites were approved for other terms; else the errors
    of `run`.
    """
    from fedbo.call_arguments import display_of, named_in_python, new_folder_of, succeeded
    from fedbo.functions import load_study
    from fedbo.sites.folders import ServiceFolder
    from fedbo.sites.serve import serve_study
    from fedbo.study.study import Study

    with named_in_python():
        display, place = display_of(progress), new_folder_of(out)
        if service is None and not isinstance(study, str | Path):
            raise checks.wrong("service", service, "name the folder of keys and approvals, since the study is no file")
        checked = study if isinstance(study, Study) else load_study(study, overrides)
        path = ServiceFolder.of_study(Path(str(study))) if service is None else Path(checks.path("service", service))
        return succeeded(serve_study(checked, checks.text("listen", listen), ServiceFolder(path), place, display))


def join(
    approval: str | Path,
    objective: Callable[..., Any] | Objective,
    *,
    site: str | Path | None = None,
    patience: float = 86400.0,
    isolate: bool = False,
) -> SiteSummary:
    """Take part in a study with an objective of this site until the study has ended; observations stay here.

    - `approval`: the file that the coordinator sent.
    - `objective`: a function of a point `x (d,)` in native units, or of a configuration where the study has a space, which may
      also take `agent` and `rng`; or an object with the methods of `fedbo.objectives.base.Objective`.
    - `site`: the folder of the site, by default that of the approval.
    - `patience`: seconds without an answer of the coordinator after which the site ends.
    - `isolate`: run each evaluation in a process of its own.

    A site that was killed goes on when it joins again. Raises SitesError where the site or its policy is in the way, or the
    coordinator refuses it.
    """
    from fedbo.call_arguments import named_in_python
    from fedbo.sites.join import join_study

    with named_in_python():
        file = Path(checks.path("approval", approval, "file"))
        folder = None if site is None else Path(checks.path("site", site))
        return join_study(file, objective, folder, patience, checks.flag("isolate", isolate))
