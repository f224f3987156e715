"""The page of the Python interface: signatures and docstrings of what users import, with an example of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

from generate_markdown import clause, page

# Each example continues those above it, as one session does. A test runs them all, but for what another process must answer.
EXAMPLES: dict[str, dict[str, str]] = {
    "Studies and runs": {
        "fedbo.load_study": """
import fedbo

study = fedbo.load_study(
    {
        "study": {"name": "first", "replicates": 2},
        "objective": {"name": "quadratic", "agents": 4, "spread": 0.1},
        "budget": {"iterations": 6},
        "exchange": {"mode": "barrier"},
        "algorithm": [{"name": "ts"}, {"name": "fts"}],
        "timing": {"evaluation": {"model": "exponential", "mean": 1.0}},
    }
)""",
        "fedbo.Study": """
from pathlib import Path

Path("first.toml").write_text(study.to_toml())""",
        "fedbo.validate": 'print(fedbo.validate("first.toml").cost.evaluations)',
        "fedbo.run": 'result = fedbo.run(study, out="runs/first")',
        "fedbo.Result": """
result = fedbo.Result.open("runs/first")
frame = result.trials().to_pandas()
print(result.best()[0]["configuration"], result.summary())
result.plot("regret.pdf", regret=True, width=3.4)""",
        "fedbo.resume": 'result = fedbo.resume("runs/first", overrides=["study.replicates=3"])',
        "fedbo.compare": """
fedbo.run("first.toml", out="runs/immediate", overrides=["exchange.mode=immediate"])
for row in fedbo.compare(["runs/first", "runs/immediate"]):
    print(row.run, row.algorithm, row.final.mean, row.difference)""",
        "fedbo.report": 'fedbo.report(["runs/first", "runs/immediate"], out="both.html")',
        "fedbo.replay": 'assert fedbo.replay("runs/first", verify=True).same',
    },
    "Questions to a run": {
        "fedbo.fork": 'fork = fedbo.fork("runs/first", at=3.0, overrides=["exchange.mode=immediate"])',
        "fedbo.Fork": """
for effect in fork.effects():
    print(effect.algorithm, effect.fact, effect.difference)""",
        "fedbo.why": 'answer = fedbo.why("runs/first", "time to level > 12", algorithm="fts", budget=40)',
        "fedbo.Why": "print(answer.causes)",
        "fedbo.fit": 'world = fedbo.fit("runs/first").tables()',
        "fedbo.twin": 'fedbo.twin("runs/first", overrides=["exchange.mode=immediate"])',
        "fedbo.worth": 'print(fedbo.worth("first.toml", points=32, out="runs/worth").words)',
        "fedbo.bench": 'fedbo.bench("small", algorithms=["fts", "ts", "random"], quick=True)',
    },
    "Tuning": {
        "fedbo.log": 'space = {"rate": fedbo.log(1e-4, 1.0), "layers": (1, 6)}',
        "fedbo.tune": """
def score(configuration, agent):
    return -((configuration["rate"] - 0.01) ** 2) - 0.1 * agent


tuned = fedbo.tune(score, space, agents=3, iterations=10, parallel=2)""",
        "fedbo.Agent": """
with fedbo.Agent("agent", space, fedbo.Terms(algorithm="gp_ei", mode="min")) as agent:
    for suggestion in agent.ask(3):
        agent.tell(suggestion.token, (suggestion.configuration["rate"] - 0.01) ** 2)
    print(agent.best())""",
        "fedbo.Terms": 'terms = fedbo.Terms(algorithm="fts", agents=2, mode="max")',
        "fedbo.Meeting": """
agent = fedbo.Agent("site0", space, terms, number=0, meeting=fedbo.Meeting("shared"))
agent.exchange()
agent.close()""",
        "fedbo.FedboSearchCV": """
from sklearn import datasets, svm

search = fedbo.FedboSearchCV(svm.SVC(), {"C": fedbo.log(0.01, 100.0)}, n_iter=8, random_state=0)
print(search.fit(*datasets.load_iris(return_X_y=True)).best_params_)""",
        "fedbo.optuna.Sampler": """
import optuna

known = optuna.create_study(sampler=fedbo.optuna.Sampler(seed=1))
known.optimize(lambda trial: trial.suggest_float("x", -1.0, 1.0) ** 2, n_trials=12)""",
        "fedbo.tuning.evaluated.evaluated": """
from fedbo.tuning.evaluated import evaluated

earlier = evaluated(known, {"x": (-1.0, 1.0)})""",
    },
    "Ray Tune": {
        "fedbo.tuning.ray_searcher.RaySearcher": """
from ray import tune

from fedbo.tuning.ray_searcher import RaySearcher

searching = tune.TuneConfig(search_alg=RaySearcher(), metric="loss", mode="min", num_samples=20)""",
        "fedbo.tuning.ray_scheduler.RayScheduler": """
from fedbo.tuning.ray_scheduler import RayScheduler

stopping = RayScheduler("rungs", "asha", steps=27, metric="loss", mode="min")""",
    },
    "Studies at sites": {
        "fedbo.serve": 'fedbo.serve("study.toml", listen="0.0.0.0:7443")',
        "fedbo.join": 'summary = fedbo.join("site1.approval", score)',
        "fedbo.SiteSummary": "print(summary.evaluations, summary.best)",
    },
}
GIVEN = ("fedbo.Study", "fedbo.Result", "fedbo.Fork", "fedbo.Why", "fedbo.SiteSummary")  # by functions, to read
MEMBERS = (*GIVEN[:-1], "fedbo.Agent")  # of the others, only what they are is said
LOGGER = (
    "`progress=True` prints the progress to standard error. The standard logger `fedbo` has the same lines as records, also "
    "without `progress`: progress at the level `INFO`, warnings at `WARNING`. A handler that writes to the stream where a line "
    "is printed anyway does not repeat it."
)
LOGGED = """
import logging

logging.basicConfig(filename="fedbo.log", level=logging.INFO)"""
CALLBACKS = ("fedbo.callbacks.MLflow", "fedbo.callbacks.TensorBoard", "fedbo.callbacks.WeightsAndBiases")
NOT_RUN = {
    "fedbo.bench": "it takes minutes",
    "fedbo.tune": "it starts Ray",
    "fedbo.serve": "it waits for sites",
    "fedbo.join": "it needs a server",
    "fedbo.SiteSummary": "it needs a server",
}


def python() -> str:
    """Return the page of what users import from `fedbo`."""
    from fedbo import errors

    intro = (
        "What `import fedbo` offers, with examples that continue each other. "
        "[For authors of plug-ins](../reference.md) has the protocols, and [stability](../stability.md) what is promised.",
        "",
    )
    parts = [line for title, examples in EXAMPLES.items() for line in _group(title, examples)]
    parts += ["## Callbacks", "", *(line for name in CALLBACKS for line in _object(name, ""))]
    parts += ["## Progress and warnings", "", LOGGER, "", *_example(LOGGED, "it would set up logging for the whole process")]
    told = "Every error that fedbo raises on purpose is a `FedboError`, and most are a `ValueError` or a `RuntimeError` too."
    meanings = {name: clause((getattr(errors, name).__doc__ or "").partition("\n")[0]) for name in sorted(errors.__all__)}
    parts += ["## Errors", "", told, "", *(f"- `fedbo.errors.{name}`: {meaning}." for name, meaning in meanings.items())]
    return page("Python", intro, parts)


def _group(title: str, examples: dict[str, str]) -> Iterator[str]:
    yield from (f"## {title}", "")
    for name, example in examples.items():
        yield from _object(name, example)


def _object(name: str, example: str) -> Iterator[str]:
    module, _, last = name.rpartition(".")
    found: Any = getattr(import_module(module), last)
    yield from (f"### `{name}`", "", *(() if name in GIVEN else _signature(last, found)), *_told(found))
    if example:
        yield from _example(example, NOT_RUN.get(name))
    for member, each in vars(found).items() if name in MEMBERS else ():
        if not member.startswith("_") and (inspect.isfunction(each) or isinstance(each, (property, classmethod))):
            yield from (f"#### `{last}.{member}`", "")
            if not isinstance(each, property):
                yield from _signature(f"{last}.{member}", getattr(each, "__func__", each))
            yield from _told(each)


def _example(code: str, reason: str | None) -> Iterator[str]:
    yield from ((f"<!-- not run: {reason} -->",) if reason else ())
    yield from ("```python", *code.strip("\n").splitlines(), "```", "")


def _signature(name: str, found: Any) -> Iterator[str]:
    """Yield a fenced block with the signature, on one line where that has room."""
    taken = inspect.signature(found)
    kept = [_brief(each) for each in taken.parameters.values() if each.name not in ("self", "cls")]
    line = f"{name}{_plain(taken.replace(parameters=kept))}".removesuffix(" -> None")
    if len(line) > 99:
        inside = [f"    {_plain(each)}," for each in kept]
        named = [place for place, each in enumerate(kept) if each.kind is each.KEYWORD_ONLY]
        if named:
            inside.insert(named[0], "    *,")
        line = "\n".join([f"{name}(", *inside, f"){line.rpartition(')')[2]}"])
    yield from ("```text", *line.splitlines(), "```", "")


def _brief(parameter: inspect.Parameter) -> inspect.Parameter:
    """Let a default that is a record with its own defaults be told as a call without arguments."""
    default = parameter.default
    if not is_dataclass(default) or default != type(default)():
        return parameter
    return parameter.replace(default=type("Told", (), {"__repr__": lambda _: f"{type(default).__name__}()"})())


def _plain(told: object) -> str:
    """Give a signature, or a part of it, without the quotes of annotations that are kept as text and without modules."""
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'(?=[,)]| =|$)", r"\1\2", str(told))
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _told(found: Any) -> Iterator[str]:
    """Yield a docstring: paragraphs on one line each, which the page breaks, and fields as a list."""
    yield from _paragraphs(inspect.getdoc(found) or "")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            begins = line.startswith("- ") or re.match(r"    \S", line) or not lines
            if begins or lines[-1].endswith(":"):
                lines.append(f"- {line.strip()}" if line.startswith("    ") else line)
            else:
                lines[-1] += f" {line.strip()}"
        for line in lines:
            yield from (line, "") if line.endswith(":") else (line,)
        yield ""
