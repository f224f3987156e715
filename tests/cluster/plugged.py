"""A package of plug-ins that is none of ours: an algorithm, an objective and an exchange mode, installed in a folder by pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.2"

[tool.setuptools]
packages = ["{name}"]

[project.entry-points."fedbo.algorithms"]
{name}_drift = "{name}.methods:Drift"

[project.entry-points."fedbo.objectives"]
{name}_bowls = "{name}.bowls:Bowls"

[project.entry-points."fedbo.exchanges"]
{name}_pairs = "{name}.pairs:Pairs"
"""
METHODS = '''
"""Steps from the best point towards the mean of what others sent."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Gt

from fedbo.algorithms.base import Decision, Field


class DriftState(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    centre: np.ndarray


class DriftServer(NamedTuple):
    x: np.ndarray
    held: np.ndarray


@dataclass(frozen=True, slots=True)
class Drift:
    """Steps from the best point towards the mean of what others sent."""

    width: Annotated[float, Gt(0)] = 0.1

    @property
    def queries(self):
        return 1

    def sends(self, step):
        return True

    def upload(self, problem):
        return {"x": Field((problem.dim,))}

    download = upload

    def agent_init(self, problem, streams):
        return DriftState(np.empty((0, problem.dim)), np.empty(0), np.full(problem.dim, 0.5))

    def ask(self, state, inbox, streams):
        for message in inbox:
            state = state._replace(centre=np.clip(message.payload["x"], 0.0, 1.0))
        best = state.x[int(state.y.argmax())] if len(state.y) else state.centre
        step = self.width * streams.rng("step").standard_normal(best.shape)
        return Decision(np.clip(0.8 * best + 0.2 * state.centre + step, 0.0, 1.0)[None, :], "own"), state

    def tell(self, state, x, y):
        return state._replace(x=np.concatenate([state.x, x]), y=np.concatenate([state.y, y]))

    def outbox(self, state, streams):
        return ({"x": state.x[int(state.y.argmax())].copy()} if len(state.y) else None), state

    def server_init(self, problem):
        return DriftServer(np.zeros((problem.n_agents, problem.dim)), np.zeros(problem.n_agents))

    def receive(self, state, message, now):
        state.x[message.sender], state.held[message.sender] = message.payload["x"], 1.0
        return state

    def broadcast(self, state, recipients, staleness_weight, streams):
        weight = state.held * staleness_weight
        if not weight.sum() > 0:
            return {}, state
        return {agent: {"x": weight @ state.x / weight.sum()} for agent in recipients}, state
'''
BOWLS = '''
"""A bowl for each agent, each with its place."""

from dataclasses import dataclass

from fedbo.objectives.functions import Branin


@dataclass(frozen=True)
class Bowls(Branin):
    """A bowl for each agent, each with its place."""
'''
PAIRS = '''
"""Rounds that close with two messages."""

from dataclasses import dataclass
from typing import ClassVar

from fedbo.coordinator.kernel.exchange import FirstK


@dataclass(frozen=True)
class Pairs(FirstK):
    """Rounds that close with two messages."""

    mode: ClassVar[str] = "{name}_pairs"
    k: int = 2
'''
STUDY = """
study = {name = "plugged", seed = 7}
objective = {name = "NAME_bowls", agents = 5}
budget = {iterations = 8}
algorithm = [{name = "NAME_drift", width = 0.2}, {name = "random"}]
exchange = {mode = "NAME_pairs"}
timing = {evaluation = {model = "lognormal"}, latency = {model = "exponential", mean = 0.1}}
recovery = {events = 20}
"""
BROKEN = {"methods.py": ("    def tell(self", "    def told(self"), "pairs.py": ("FirstK\n", "FirstFew\n")}


def install(root: Path, name: str, broken: bool = False) -> Path:
    """Write the package, install it in a folder of its own, and give the folder."""
    source, place = root / f"{name}-source", root / f"{name}-installed"
    (source / name).mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT.format(name=name))
    for file, text in {"__init__.py": "", "methods.py": METHODS, "bowls.py": BOWLS, "pairs.py": PAIRS}.items():
        words = text.replace("{name}", name)
        (source / name / file).write_text(words.replace(*BROKEN[file]) if broken and file in BROKEN else words)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(place), str(source)], check=True)
    return place


def study(name: str, folder: Path) -> Path:
    """Write a study that names all three plug-ins."""
    file = folder / f"{name}.toml"
    file.write_text(STUDY.replace("NAME", name), encoding="utf-8")
    return file
