"""The public errors: one base for all, each in `fedbo.errors`."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import fedbo
from fedbo.settings import version as found

ROOT = Path(__file__).resolve().parents[2]
# Raised and caught within the package, or by design no error of a user.
INTERNAL = {
    "ChannelClosed", "Diverged", "EvaluationError", "HostLost", "StudyError", "NotPositiveDefinite", "Stop",
    "StoppedEarly", "Superseded", "Untried", "HttpRefused", "RequestRefused", "WireError", "MaskingError",
    "SiteConnectionError",  # of a check before a study, which says it in a line
    "NotMadeError",  # ends the step in progress at an early end, and nobody sees it
    "NodeLeavesError",  # moves a run to another node
    "ChangedCodeError", "HeadLostError", "ReturnError",  # a user meets each as a RunError
}  # fmt: skip


def test_every_error_of_the_package_has_one_base_and_is_in_one_module() -> None:
    found: dict[str, type[BaseException]] = {}
    for path in (ROOT / "fedbo").rglob("*.py"):
        place = path.relative_to(ROOT).with_suffix("")
        if "testing" in place.parts or not re.search(r"^class \w+\(.*(Error|Exception)\b.*\):", path.read_text(), re.M):
            continue
        module = importlib.import_module(".".join(place.parts).removesuffix(".__init__"))
        for name, thing in vars(module).items():
            if inspect.isclass(thing) and issubclass(thing, Exception) and thing.__module__ == module.__name__:
                found[name] = thing
    public = {name: thing for name, thing in found.items() if not name.startswith("_") and name not in INTERNAL}
    assert len(public) > 20
    assert [name for name, thing in public.items() if not issubclass(thing, fedbo.errors.FedboError | Warning)] == []
    assert [name for name, thing in public.items() if getattr(fedbo.errors, name, None) is not thing] == []


def test_what_one_completes_after_fedbo_is_verbs_and_nouns() -> None:
    assert not [name for name in dir(fedbo) if name.endswith(("Error", "Warning"))]
    assert set(dir(fedbo.errors)) == set(fedbo.errors.__all__) and "StudyError" in dir(fedbo.errors)
    with pytest.raises(AttributeError, match=r"'RunError'; errors are in fedbo.errors: fedbo.errors.RunError"):
        _ = fedbo.RunError  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"'fedbo.errors' has no attribute 'run'"):
        _ = fedbo.errors.run  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert fedbo.__version__ == version("fedbo")


def test_a_clone_without_an_installation_has_the_version_and_requirements_of_its_project_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(found, "version", missing)
    monkeypatch.setattr(found, "requires", missing)
    assert found.fedbo_version.__wrapped__() == fedbo.__version__
    asked = {required.name: required for required in map(Requirement, found.requirements())}
    assert asked["pyarrow"].marker is None
    assert str(asked["torch"].marker) == 'extra == "torch"'
