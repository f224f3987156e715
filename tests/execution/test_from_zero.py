"""A cluster without workers until a study asks for one, which Ray's autoscaler starts by its provider of pretended machines."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from other_rays import kill, ray_folder, surroundings

from fedbo.study.study import load_study
from tests.random_studies.chaos.raylets import QUIET
from tests.random_studies.chaos.raylets import kill as kill_all

STORE = 80 * 2**20  # bytes, about the least that Ray takes
STUDY: dict[str, Any] = {
    "study": {"name": "zero"},
    "objective": {"name": "quadratic", "agents": 1},
    "budget": {"iterations": 1},
    "algorithm": [{"name": "random"}],
    "timing": {"clock": "wall"},
    "evaluation": {"parallel": 2},
    "hosting": {"kind": "packed", "workers": 1, "package": "image", "address": "auto"},
}


def pretended(port: int) -> dict[str, Any]:
    """Return a cluster of the launcher that has a head without CPUs, and up to one worker."""
    commands = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    place = f"{ray.util.get_node_ip_address()}:{port}"
    return {
        "cluster_name": "zero",
        "max_workers": 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "provider": {"type": "fake_multinode", "gcs_address": place, "disable_node_updaters": True},
        "auth": {"ssh_user": "nobody"},
        "docker": {},
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 2, "object_store_memory": STORE},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 1,
            },
        },
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{which}_commands": [] for which in commands},
    }


@pytest.mark.ray
@pytest.mark.long
def test_evaluations_that_wait_bring_a_worker(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("0.0.0.0", 0))
        port = free.getsockname()[1]
    (tmp_path / "zero.json").write_text(json.dumps(pretended(port)), encoding="utf-8")
    (tmp_path / "study.toml").write_text(load_study(STUDY).to_toml(), encoding="utf-8")
    words = ("--head", f"--port={port}", "--num-cpus=0", f"--object-store-memory={STORE}", "--include-dashboard=false")
    start = ["start", *words, "--disable-usage-stats", f"--autoscaling-config={tmp_path / 'zero.json'}"]
    with ray_folder() as folder:
        fake = {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
        around = {**surroundings(folder), **QUIET, **fake}
        try:
            head = [sys.executable, "-m", "ray.scripts.scripts", *start]
            subprocess.run(head, check=True, capture_output=True, timeout=300, env=around)
            address = (folder / "ray" / "ray_current_cluster").read_text(encoding="utf-8")
            run = [sys.executable, "-m", "fedbo", "run", "study.toml", "--out", "run", "--quiet", "--address", address]
            done = subprocess.run(run, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            code = f"import ray; print(len(ray._raylet.GcsClient(address={address!r}).get_all_node_info()))"
            nodes = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
            assert int(nodes.stdout) >= 2  # on a busy machine the autoscaler gives slow ones up, and starts others
        finally:
            kill(folder)
            kill_all(folder)
