"""A package of plug-ins outside the repository on three hosts, its contract, and the same package with faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import plugged
import pytest
from befalling import tables
from laboratory import PATIENCE, Laboratory, done, hindrance, laboratory

WHY_NOT = hindrance()
CONTRACTS = """
import pytest
from fedbo.testing.plugin_contract import check_plugin, plugins_of


@pytest.mark.parametrize("plugin", plugins_of("NAME"), ids=lambda plugin: plugin.name)
def test_contract(plugin):
    check_plugin(plugin)
"""
PACKED = ("--set", "hosting.kind=packed", "--set", "hosting.workers=3")
ON_HOSTS = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("plugged")
    return {name: plugged.install(root, name, broken=name == "wreck") for name in ("drifters", "wreck")}


def asked(folders: dict[str, Path], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Carry a command of Python out where both packages are installed."""
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders.values()))}
    return subprocess.run([sys.executable, "-m", *arguments], env=around, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.long
def test_a_package_keeps_its_contract_and_one_with_faults_is_a_line_for_each(folders: dict[str, Path], tmp_path: Path) -> None:
    listed = asked(folders, "fedbo", "list", cwd=tmp_path)
    assert listed.returncode == 0
    assert all(f"drifters_{name}" in listed.stdout for name in ("drift", "bowls", "pairs"))
    assert [line.split(":")[0] for line in listed.stderr.splitlines()] == [
        f"the plug-in 'wreck_{name}' of wreck 1.2 cannot be used" for name in ("drift", "pairs")
    ]
    plain = ["pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    for name in ("drifters", "wreck"):
        (tmp_path / f"test_{name}.py").write_text(CONTRACTS.replace("NAME", name))
    kept, broken = (asked(folders, *plain, f"test_{name}.py", cwd=tmp_path) for name in ("drifters", "wreck"))
    assert kept.returncode == 0 and "3 passed" in kept.stdout, kept.stdout
    assert broken.returncode == 1 and "2 failed, 1 passed" in broken.stdout, broken.stdout
    assert "Drift has no 'tell', which the protocol Algorithm asks for" in broken.stdout


@pytest.fixture(scope="module")
def lab(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    everywhere = {"PYTHONPATH": str(folders["drifters"])}
    with laboratory(tmp_path_factory.mktemp("hosts"), everywhere) as made:
        made.start_ray()
        yield made


def ran(lab: Laboratory, study: Path, out: Path, *more: str, **around: str) -> subprocess.Popen[str]:
    """Run a study from the head's machine by the command line."""
    words = [sys.executable, "-m", "fedbo", "run", str(study), "--out", str(out), "--quiet", *more]
    return lab.run(0, *words, **around)


@ON_HOSTS
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_a_package_runs_on_three_hosts_with_the_bytes_of_one_process(lab: Laboratory, tmp_path: Path) -> None:
    study = plugged.study("drifters", tmp_path)
    done(ran(lab, study, tmp_path / "alone"))
    done(ran(lab, study, tmp_path / "far", *PACKED, "--address", lab.address))
    assert tables(tmp_path / "far") == tables(tmp_path / "alone")


@ON_HOSTS
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_a_package_with_faults_or_one_that_hosts_lack_is_a_line(
    lab: Laboratory, folders: dict[str, Path], tmp_path: Path
) -> None:
    both = {"PYTHONPATH": os.pathsep.join(map(str, folders.values()))}
    told, _ = ran(lab, plugged.study("wreck", tmp_path), tmp_path / "wreck", **both).communicate(timeout=PATIENCE)
    assert "[[algorithm]] 1 name = 'wreck_drift': the plug-in 'wreck_drift' of wreck 1.2 cannot be used" in told
    assert "Traceback" not in told and len(told.splitlines()) == 2, "a line for each of the two that are broken"
    other = {"PYTHONPATH": str(plugged.install(tmp_path, "lonely"))}
    driver = ran(lab, plugged.study("lonely", tmp_path), tmp_path / "far", *PACKED, "--address", lab.address, **other)
    told, _ = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 1 and "has no algorithms.lonely_drift" in told.splitlines()[-1], told
