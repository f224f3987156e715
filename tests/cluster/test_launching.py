"""The files that launch clusters: Ray's own launcher accepts them, nobody gets in without a token, and no code goes astray."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
LAUNCHED = ("cluster.yaml", "docs/cluster/aws.yaml")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", LAUNCHED)
def test_ray_accepts_what_its_launcher_is_given(name: str) -> None:
    """These are the two steps that `ray up` makes before it contacts anybody."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(read(name))
    validate_config(prepared)
    assert prepared["cluster_name"].startswith("fedbo") and prepared["max_workers"] >= 2


def test_ray_refuses_a_key_that_its_schema_does_not_have() -> None:
    """The check above would be of no worth if anything passed it."""
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    with pytest.raises(ValidationError, match="'setup_comands' was unexpected"):
        validate_config(prepare_config({**read("cluster.yaml"), "setup_comands": []}))


@pytest.mark.parametrize("name", LAUNCHED)
def test_every_ray_of_a_launched_cluster_asks_for_the_token(name: str) -> None:
    config = read(name)
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        (start,) = (command for command in config[part] if "ray start" in command)
        assert start.startswith("RAY_AUTH_MODE=token ") and "--dashboard-host=0" not in start
    assert any(place.endswith(".ray/auth_token") for place in config["file_mounts"])


def test_the_job_on_kubernetes_asks_for_the_token_and_runs_the_same_image_everywhere() -> None:
    job = read("docs/cluster/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    containers = [container for group in groups for container in group["template"]["spec"]["containers"]]
    assert len({container["image"] for container in containers}) == 1
    for container in containers:
        assert "/srv/fedbo" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert {"name": "FEDBO_DATA", "value": "/srv/fedbo/data"} in container["env"]
    assert "--address auto" in job["spec"]["entrypoint"] and "--out /srv/fedbo/" in job["spec"]["entrypoint"]


def test_ray_start_has_the_parameters_that_the_job_on_kubernetes_gives() -> None:
    """The operator makes an option of each; Ray ships no schema of a RayJob, which is the operator's."""
    from ray.scripts.scripts import start

    known = {name for parameter in start.params for name in (*parameter.opts, *parameter.secondary_opts)}
    cluster = read("docs/cluster/rayjob.yaml")["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert {f"--{name}" for name in group["rayStartParams"]} <= known


def test_the_files_name_the_versions_that_are_pinned() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    assert read("docs/cluster/rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == pinned["ray"]
    said = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("docs/cluster/aws.yaml", "docs/cluster/rayjob.yaml"))
    assert said.count(f"REGISTRY/fedbo:{version('fedbo')}") == said.count("REGISTRY/fedbo:") > 0


def test_nothing_ships_the_working_directory() -> None:
    """Its data, runs and secrets would go along: the package travels as a wheel or in an image."""
    for path in [ROOT / "cluster.yaml", *(ROOT / "docs").rglob("*.yaml"), *(ROOT / "fedbo").rglob("*.py")]:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "working_dir" in line]
        assert lines == [], path


@pytest.mark.long
def test_the_wheel_is_the_whole_package_and_asks_for_nothing(tmp_path: Path) -> None:
    import subprocess
    import sys
    import zipfile

    from fedbo.execution.wheel import build_wheel, fingerprint

    first, again = (build_wheel(tmp_path / name) for name in ("a", "b") if not (tmp_path / name).mkdir())
    assert first.read_bytes() == again.read_bytes() and f"-0{fingerprint()}-" in first.name
    with zipfile.ZipFile(first) as wheel:
        names = {name for name in wheel.namelist() if "dist-info" not in name}
        (about,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("METADATA"))
    assert names == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "fedbo").rglob("*")
        if path.suffix in (".py", ".typed", ".jinja") and "examples" not in path.parts  # hosts need no studies
    }
    assert "Requires-Dist" not in about
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*install, "--target", str(target), str(first)], check=True)
    code = "import fedbo, importlib.metadata as m; from fedbo.execution.wheel import fingerprint as f"
    code += "; print(fedbo.__file__, m.version('fedbo'), f())"
    told = subprocess.run(
        [sys.executable, "-P", "-c", code], env={"PYTHONPATH": str(target)}, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [str(target / "fedbo" / "__init__.py"), version("fedbo"), fingerprint()]


def test_the_schema_that_is_used_is_rays_own() -> None:
    import ray.autoscaler

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False and set(read("cluster.yaml")) <= set(schema["properties"])
