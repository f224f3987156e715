"""How a study finds its cluster: what is wrong on the way is said in one line with what would do, and soon."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from other_rays import another_ray, ray_folder, surroundings

import fedbo
from fedbo.commands.arguments import hosting_sets
from fedbo.execution.cluster import connection_error
from fedbo.execution.hosts import host_problems
from fedbo.execution.wheel import sources
from fedbo.study.study import StudyError, load_study

STUDY: dict[str, Any] = {
    "study": {"name": "reaching"},
    "objective": {"name": "quadratic"},
    "budget": {"iterations": 1},
    "algorithm": [{"name": "random"}],
    "hosting": {"kind": "packed"},
}


SCRIPT = """
import sys; from fedbo.cli import main
print(*[main(["run", "study.toml", "--quiet", f"--out=run-{n}", "--address", a]) for n, a in enumerate(sys.argv[1:])])
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What a person without a token of Ray's is told of clusters that cannot be had, one line for each address.

    `silent` is somebody who listens and says nothing. Ray itself would go on trying for two minutes.
    """
    folder, begun = tmp_path_factory.mktemp("reaching"), time.monotonic()
    (folder / "study.toml").write_text(load_study(STUDY).to_toml(), encoding="utf-8")
    around = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with socket.create_server(("0.0.0.0", 0)) as server, socket.create_server(("127.0.0.1", 0)) as inner:
        silent, loopback = (f"127.0.0.1:{one.getsockname()[1]}" for one in (server, inner))
        addresses = {"no address": "10.0.0.1", "nobody": "127.0.0.1:9", "client": f"ray://{silent}", "silent": silent}
        addresses["loopback"] = loopback
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *addresses.values()],
            cwd=folder,
            env={**around, "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [line for line in done.stderr.splitlines() if "Ray cluster at" in line]
    assert done.stdout.split() == ["1"] * 5 and len(lines) == 5, done.stderr
    assert time.monotonic() - begun < 115
    yield dict(zip(addresses, lines, strict=True))


def test_the_short_forms_are_what_they_say() -> None:
    given = hosting_sets(3, "ray://10.0.0.1:10001")
    assert given == ["hosting.workers=3", 'hosting.address="ray://10.0.0.1:10001"']
    hosting = load_study(STUDY, given).hosting
    assert (hosting.workers, hosting.address, hosting.package) == (3, "ray://10.0.0.1:10001", "wheel")
    assert hosting_sets(None, None) == []


def test_how_the_cluster_is_reached_changes_no_digest() -> None:
    elsewhere = load_study(STUDY, ["hosting.address=auto", "hosting.package=image"])
    assert elsewhere.digest() == load_study(STUDY).digest()
    with pytest.raises(StudyError, match=r"\[hosting\] package = 'egg': .*'wheel' or 'image'"):
        load_study(STUDY, ["hosting.package=egg"])


@pytest.mark.long
def test_an_address_that_is_none_is_refused_with_examples(told: dict[str, str]) -> None:
    line = "no Ray cluster at '10.0.0.1': write local, auto, HOST:PORT or ray://HOST:PORT, for example 10"
    assert line in told["no address"]


@pytest.mark.long
def test_a_cluster_where_nobody_answers_is_named(told: dict[str, str]) -> None:
    assert "no Ray cluster at '127.0.0.1:9': no connection" in told["nobody"]
    assert "check that the head node runs" in told["nobody"] and "to go on without it, set --address local" in told["nobody"]


@pytest.mark.long
def test_an_address_that_ray_replaces_is_tried_as_ray_will(told: dict[str, str]) -> None:
    assert re.search(r"no connection to \S+:\d+, by which Ray replaces it", told["loopback"])


@pytest.mark.long
def test_without_a_token_nobody_connects_unless_told_to(told: dict[str, str]) -> None:
    line = told["silent"]
    assert "this process has no token; run `ray get-auth-token` on a host of the cluster" in line
    assert "or set RAY_AUTH_MODE=disabled if it needs none" in line


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="Ray's client is installed")
@pytest.mark.long
def test_a_client_without_rays_client_is_told_what_to_install(told: dict[str, str]) -> None:
    assert 'pip install "ray[client]"' in told["client"]


def test_other_versions_of_ray_are_told_in_rays_own_words() -> None:
    said = connection_error(
        "'auto'", RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1\n    Python: 3.8")
    )
    assert said == (
        "the Ray cluster at 'auto' has other versions: Version mismatch: The cluster was started with: Ray: 2.1 Python: 3.8"
    )


def test_a_token_that_is_refused_is_found_behind_the_error_that_ray_raises() -> None:
    error = ConnectionError("Failed to connect")
    error.__cause__ = RuntimeError("connection error")
    error.__cause__.__cause__ = ray.exceptions.AuthenticationError("RPC error: InvalidAuthToken: missing or incorrect")
    assert connection_error("'h:1'", error).startswith(
        "the Ray cluster at 'h:1' rejected this process's token; run `ray get-auth"
    )


def test_rays_own_advice_gives_way_to_what_helps_here() -> None:
    absent = connection_error("'auto'", ConnectionError("Could not find any running Ray instance. Please specify the one to …"))
    assert absent.startswith("no Ray cluster at 'auto': Ray does not run on this host; start Ray, run on a host of the cluster")
    late = connection_error("'ray://h:1'", ConnectionError("ray client connection timeout"))
    assert late.endswith("check the port of Ray's client server (10001) and the cluster's token")


OURS = {"python": "3.11.9", "numpy": "2.4.6", "package": "abc"}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        ({"numpy": "2.1.0"}, "has numpy 2.1.0, but this process has numpy 2.4.6; install the same versions on all hosts"),
        ({"package": "abd"}, "has a different fedbo from this process; install the same one there, or set [hosting] package"),
        ({"seen": False}, "does not see '/shared/run'; set --out to a folder that all hosts share"),
        ({"writes": False}, "cannot write to '/shared/run'; run Ray there as a user with write permission"),
        (
            ModuleNotFoundError("No module named 'fedbo'"),
            'does not have fedbo; install it there, or set [hosting] package = "wheel"',
        ),
        (
            ModuleNotFoundError("No module named 'pooch'"),
            "lacks a package that fedbo needs (No module named 'pooch'); install it",
        ),
        (ray.exceptions.GetTimeoutError("late"), "has not answered within 180 s; check its load"),
        (OSError("no pip"), "cannot start a process: no pip"),
    ],
)
def test_what_is_amiss_with_a_host_is_said_with_what_would_do(found: Any, said: str) -> None:
    told = found if isinstance(found, Exception) else {**OURS, "seen": True, "writes": True, "more": [], **found}
    lines = [*host_problems(told, OURS, Path("/shared/run"))]
    assert len(lines) == bool(said) and "".join(lines).startswith(said)


def test_hosts_get_all_files_of_the_package_but_what_pages_and_type_checkers_read() -> None:
    top = Path(fedbo.__file__).parent
    left = {".pyc", ".nbi", ".nbc", ".pyi", ".css", ".js"}
    files = {path.relative_to(top) for path in top.rglob("*") if path.is_file() and path.suffix not in left}
    assert {f"fedbo/{path}" for path in files if "examples" not in path.parts} == set(sources())


@pytest.mark.ray
@pytest.mark.slow
def test_a_process_that_has_a_token_is_told_of_a_cluster_without(tmp_path: Path) -> None:
    """Ray lets it in, and ends each actor that it starts."""
    (tmp_path / "study.toml").write_text(load_study(STUDY, ["hosting.package=image"]).to_toml(), encoding="utf-8")
    with ray_folder() as folder, another_ray(folder) as address:
        around = surroundings(folder, RAY_AUTH_TOKEN="0123456789abcdef")
        around.pop("RAY_AUTH_MODE", None)
        words = ["run", "study.toml", "--out", "run", "--quiet", "--address", address]
        command = [sys.executable, "-m", "fedbo", *words]
        refused = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=120)
        line = (
            f"the Ray cluster at '{address}' serves anyone, since it was started without a token; start it with RAY_AUTH_MODE"
        )
        assert refused.returncode and line in refused.stderr, refused.stderr
        around["RAY_AUTH_MODE"] = "disabled"
        words = ["resume", "run"] if (tmp_path / "run").exists() else words
        command = [sys.executable, "-m", "fedbo", *words]
        done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


@pytest.mark.ray
@pytest.mark.slow
def test_doctor_says_for_each_host_what_it_lacks(tmp_path: Path) -> None:
    """The hosts have no data set, and this machine has one, which is a file of the right name in the wrong place for them."""
    with ray_folder() as folder, another_ray(folder, FEDBO_DATA=str(tmp_path / "none"), HOME=str(tmp_path)) as address:
        done = subprocess.run(
            [sys.executable, "-m", "fedbo", "doctor", "--address", address, "--format", "json"],
            cwd=tmp_path,
            env=surroundings(folder, RAY_AUTH_MODE="disabled"),
            capture_output=True,
            text=True,
        )
    found = {each["what"]: each for each in json.loads(done.stdout)["findings"]}
    (host,) = (each for name, each in found.items() if name.startswith("host "))
    here = [name for name, each in found.items() if name.startswith("data ") and each["state"] == "ok"]
    assert (host["state"], done.returncode) == (("broken", 1) if here else ("ok", 0))
    assert host["found"] == ("; ".join(f"{name}: missing" for name in here) or "has what this machine has")
