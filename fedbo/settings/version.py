"""The installation of fedbo, or its clone: version, requirements, and the findings of checks."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple


@cache
def fedbo_version() -> str:
    """Return the version of the installed package; that of `pyproject.toml` in a clone without an installation."""
    try:
        return version("fedbo")
    except PackageNotFoundError:
        return str(_project()["version"])


def requirements() -> list[str]:
    """Return the requirements in the form of package metadata, where each of an extra ends with `; extra == "NAME"`."""
    try:
        return requires("fedbo") or []
    except PackageNotFoundError:
        project = _project()
        extras = project["optional-dependencies"].items()
        return [*project["dependencies"], *(f'{line}; extra == "{extra}"' for extra, lines in extras for line in lines)]


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8"))["project"]
    return project


class Finding(NamedTuple):
    """One check: its state is "ok", "missing" for something that is not needed, or "broken"; with a remedy if needed."""

    what: str
    state: str
    found: str
    remedy: str = ""
