"""The examples of XGBoost and PyTorch on a page run on a Ray cluster of two nodes, where the library is installed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.other_rays import another_ray, ray_folder, surroundings

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "several_sites.md"
SEEN = "    __import__('pathlib').Path('nodes', __import__('ray').get_runtime_context().get_node_id()).touch()\n"


def example(name: str, language: str) -> str:
    """Return the block of an example of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"<!-- example: {name} -->\n```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None, name
    return found[1]


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[dict[str, str]]:
    """Start a cluster of two nodes on this machine, and yield the environment of a process that finds it."""
    with ray_folder() as folder, another_ray(folder) as address:
        environment = surroundings(folder, RAY_AUTH_MODE="disabled")
        options = (f"--address={address}", "--num-cpus=1", "--disable-usage-stats")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        subprocess.run(command, check=True, capture_output=True, timeout=300, env=environment)
        yield environment  # all processes of the folder are killed at the end


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(("name", "library"), [("XGBoost", "xgboost"), ("PyTorch", "torch")])
def test_the_example_of_a_library_runs_on_two_nodes(
    name: str, library: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip(library)
    environment = request.getfixturevalue("two_nodes")  # which starts only where the library is installed
    code = example(name, "python")
    for before, after in (
        ("iterations=8", 'iterations=2, initial=1, address="auto"'),
        ("def accuracy(config, agent):\n", f"def accuracy(config, agent):\n{SEEN.replace('nodes', f'{tmp_path}/nodes')}"),
    ):
        assert before in code
        code = code.replace(before, after)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "example.py").write_text(code, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "example.py"], check=False, capture_output=True, text=True, timeout=500, env=environment, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    numbers = re.compile(r"'[^']*runs/[^']*'|[-+]?\d[\d.e-]*")
    words = [
        numbers.sub("#", text).replace("evaluations>", "evaluations").split() for text in (ran.stdout, example(name, "text"))
    ]
    assert words[0] == words[1], ran.stdout
    assert len(list((tmp_path / "nodes").iterdir())) == 2
