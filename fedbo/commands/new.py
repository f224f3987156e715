"""The commands `fedbo new` and `fedbo examples`: small complete files to begin with."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from fedbo.commands.arguments import Format, Printed, print_json
from fedbo.settings.shown import quoted


class Kind(StrEnum):
    """The kinds of examples of `fedbo new`."""

    study = "study"
    objective = "objective"
    algorithm = "algorithm"
    plugin = "plugin"
    sites = "sites"


Files = dict[str, tuple[str, dict[str, Any]]]  # path: the template and what it is filled with

_NEXT = {
    Kind.study: "fedbo run {name}.toml",
    Kind.objective: "python -m pytest test_{name}.py, then fedbo run {name}.toml",
    Kind.algorithm: "python -m pytest test_{name}.py, then fedbo run {name}.toml",
    Kind.plugin: 'cd {name}, then pip install --editable ".[test]", then pytest',
    Kind.sites: "fedbo site new north at each site, then fedbo approve north/request.json --study {name}.toml",
}
CONTRACTS = {
    Kind.objective: ("objective_contract", "check_federation"),
    Kind.algorithm: ("algorithm_contract", "check_algorithm"),
}


def new(
    kind: Annotated[Kind, typer.Argument(help="Kind of example to write.", show_default=False)],
    name: Annotated[str, typer.Argument(help="Name of the example, for instance my_search.", show_default=False)],
    folder: Annotated[Path, typer.Option("--folder", help="Folder for the new files.")] = Path("."),
    printed: Printed = Format.text,
) -> None:
    """Write a small complete example: a study, a study at sites, or with its test an objective, an algorithm or a plug-in."""
    from fedbo.actors.storage import atomic
    from fedbo.study.paths import usable

    _check_name(kind, name)
    files = _files(kind, name)
    for path in files:
        if (folder / path).exists():
            raise typer.BadParameter(f"'{folder / path}' already exists; use another name or another --folder")
    with usable(folder, "cannot create a file there"):
        for path, text in rendered(files).items():
            atomic.write_text(folder / path, text)
    made, after = [str(folder / path) for path in files], _NEXT[kind].format(name=name)
    if printed is Format.json:
        print_json({"files": made, "next": after})
        return
    for path in made:
        print(path)
    print(f"next: {after}")


def examples(
    name: Annotated[str | None, typer.Argument(help="Name of the study to copy. Default: list all studies.")] = None,
    folder: Annotated[Path, typer.Option("--folder", help="Folder for the copy.")] = Path("."),
    printed: Printed = Format.text,
) -> None:
    """List the studies that come with fedbo, or copy one of them."""
    from fedbo.actors.storage import atomic
    from fedbo.figures.reports.tables import console, examples_table
    from fedbo.settings.errors import unknown
    from fedbo.study.document import read
    from fedbo.study.paths import usable

    known = {path.stem: path for path in sorted(example_folder().glob("*.toml"))}
    if name is None:
        rows = [{"name": each, "description": read(path)["study"].get("description", "")} for each, path in known.items()]
        print_json({"examples": rows}) if printed is Format.json else console().print(examples_table(rows))
        return
    if name not in known:
        raise typer.BadParameter(unknown("example", name, known))
    copy = folder / known[name].name
    if copy.exists():
        raise typer.BadParameter(f"'{copy}' already exists; use another --folder")
    with usable(folder, "cannot create a file there"):
        atomic.copy(known[name], copy)
    print_json({"files": [str(copy)]}) if printed is Format.json else print(f"{copy}\nnext: fedbo run {quoted(copy)}")


def example_folder() -> Path:
    """Return the folder of the studies that come with the package."""
    from importlib.resources import files

    return Path(str(files("fedbo.examples")))


def _check_name(kind: Kind, name: str) -> None:
    if kind is Kind.study:
        if re.fullmatch(r"[A-Za-z0-9][\w.-]*", name) is None:
            raise typer.BadParameter(f"'{name}' is not a valid file name; use letters, digits, '_' and '-'")
    elif re.fullmatch(r"[a-z][a-z0-9_]*", name) is None or keyword.iskeyword(name):
        raise typer.BadParameter(
            f"'{name}' is not a valid module name; use lower-case letters, digits and '_', for example my_search"
        )
    elif owner := _owner(name):
        raise typer.BadParameter(f"'{name}' is the name of {owner}, which it would replace; use another one, such as my_{name}")


def _owner(name: str) -> str:
    """Return what has this name already, and would be shadowed or replaced by a module or a method so named."""
    from fedbo.algorithms.catalog import catalogue as algorithms
    from fedbo.objectives.catalog import catalogue as objectives

    if name in sys.stdlib_module_names or name in ("sitecustomize", "usercustomize"):
        return "a module of Python"
    if name == "conftest" or name.startswith("test_"):
        return "a file of pytest"
    if name in algorithms() or name in objectives():
        return "a method or an objective of the catalogue"
    if _is_installed(name):
        return "an installed package"
    return ""


def _is_installed(name: str) -> bool:
    """Check for an importable module, apart from files of the working directory, or a distribution of this name."""
    with suppress(PackageNotFoundError):
        return bool(version(name))
    with suppress(ImportError, ValueError):
        path = [folder for folder in sys.path if folder and Path(folder).resolve() != Path.cwd()]
        return PathFinder.find_spec(name, path) is not None
    return False


def _files(kind: Kind, name: str) -> Files:
    """List the files to write, each with its template and the template's values."""
    if kind is Kind.study:
        return {f"{name}.toml": ("study.toml", {"name": name})}
    if kind is Kind.sites:
        return sites_files(name)
    title = "".join(part.capitalize() for part in name.split("_"))
    if kind is not Kind.plugin:
        contract, check = CONTRACTS[kind]
        filled = {"name": name, "title": title, kind.value: f"{name}.py:{title}", "contract": contract, "check": check}
        return {
            f"{name}.py": (f"{kind.value}.py", filled),
            f"{name}.toml": ("study.toml", filled),
            f"test_{name}.py": ("test.py", filled),
        }
    filled = {"name": name, "distribution": name.replace("_", "-")}
    study = {"name": name, "algorithm": f"{name}_search", "objective": f"{name}_ripple"}
    return {
        f"{name}/pyproject.toml": ("pyproject.toml", filled),
        f"{name}/README.md": ("readme.md", filled),
        f"{name}/{name}/__init__.py": ("", {}),
        f"{name}/{name}/algorithm.py": ("algorithm.py", {"title": "Search"}),
        f"{name}/{name}/objective.py": ("objective.py", {"title": "Ripple"}),
        f"{name}/test_plugins.py": ("test_plugins.py", filled),
        f"{name}/study.toml": ("study.toml", study),
    }


def sites_files(name: str, objective: str = "", **filled: Any) -> Files:
    """List a study at sites, and the objective of one site at the path `objective`; `filled` are values of the templates."""
    values = {"name": name, "agents": 3, "iterations": 10, "share": "nothing", "best": (60.0, 21.0), "seconds": 1.0} | filled
    return {f"{name}.toml": ("sites.toml", values), objective or f"{name}.py": ("site.py", values)}


def rendered(files: Files) -> Mapping[str, str]:
    """Return the text of each file."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("fedbo", "templates"), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    return {
        path: templates.get_template(f"{template}.jinja").render(filled) if template else ""
        for path, (template, filled) in files.items()
    }
