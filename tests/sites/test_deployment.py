"""The files of docs/deployment: their commands could be given, and what they name is there."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedbo.cli import _command
from tests.documentation import pages

FOLDER = pages.ROOT / "docs" / "deployment"
UNITS = ("fedbo-serve.service", "fedbo-join.service")


def check(arguments: list[str]) -> None:
    """Parse a command line of fedbo without carrying it out; an error when it could not be given."""
    command = _command()
    with command.make_context("fedbo", list(arguments)) as context:
        name, found, rest = command.resolve_command(context, list(arguments))
        found.make_context(name, rest, parent=context)


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return found


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(FOLDER / name)
    return found


def test_containers_give_commands_that_exist_and_no_site_opens_a_port() -> None:
    services = compose()["services"]
    assert set(services) == {"coordinator", "site"}
    for service in services.values():
        check(service["command"])
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["user"] == "1000:1000"
    assert "ports" not in services["site"]
    listen = services["coordinator"]["command"][services["coordinator"]["command"].index("--listen") + 1]
    assert services["coordinator"]["ports"] == [f"{listen.rpartition(':')[2]}:7443"]


def test_the_image_is_of_this_version_and_copies_what_there_is() -> None:
    lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    (image,) = {service["image"] for service in compose()["services"].values()}
    version = re.search(r'^version = "(.*)"', (pages.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None and image == f"fedbo-site:{version[1]}" and image in lines
    assert "[serve]" in lines and re.search(r"^USER fedbo$", lines, re.MULTILINE)
    for copied in re.findall(r"^COPY (?!--from)(\S+)", lines, re.MULTILINE):
        assert (pages.ROOT / copied).exists()
    build = compose()["services"]["site"]["build"]
    assert (FOLDER / build["context"]).resolve() == pages.ROOT and (pages.ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", UNITS)
def test_units_give_commands_that_exist_and_write_to_one_folder(name: str) -> None:
    service = unit(name)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "fedbo"
    check(arguments)
    assert service["ReadWritePaths"] == service["WorkingDirectory"] and service["ProtectSystem"] == "strict"
    # A wrong policy or a revoked key is not mended by another start.
    assert service["RestartPreventExitStatus"] == "2" and service["KillSignal"] == "SIGINT"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    text = (FOLDER / name).read_text(encoding="utf-8").replace("/opt/fedbo/bin/fedbo", "/bin/true")
    (tmp_path / name).write_text(text, encoding="utf-8")
    told = subprocess.run(["systemd-analyze", "verify", str(tmp_path / name)], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr.strip()) == (0, "")
