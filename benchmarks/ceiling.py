"""All main methods, their controls and a centralised ceiling on one bench of real federations; prints Markdown.

    python benchmarks/ceiling.py [--tasks NAME ...] [--replicates 5] [--out ceiling] [--show]

Methods send after every iteration, behind a barrier, with their default settings. `pooled` and `pooled_ei` see the observations
of all agents, now and before. Scores are in per cent of an agent's range, from the worst to the best score of any method.
Differences are paired over replicates, whose values are means over agents; Holm's correction covers all tests of a task. Run it
again to continue after an interruption; `--show` prints the tasks that are whole. `guide` is of the plug-in fedbo-rivals.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import ttest_1samp

import fedbo
from fedbo.analysis.result import Result
from fedbo.analysis.summary import holm
from fedbo.execution.directory import unfinished
from fedbo.study.study import Study, load_study

Array = npt.NDArray[np.float64]
TIMES = (1, 3, 5, 10)
TESTED = (5, 10)
CEILINGS = ("pooled", "pooled_ei")
LOCAL = ("ts", "gp_ei")
# Each federated method, itself without messages, and its controls.
CONTROLS = {
    "fed_prior": ("fed_prior_alone", "fed_prior_noise", "fed_prior_shuffled"),
    "trust_best": ("trust_best_alone", "trust_best_noise"),
    "guide": ("guide_alone", "guide_centre", "guide_shuffled"),
    "share_best": (),
    "fts": ("fts_noise",),
}
OFTEN = ("fed_prior", "fed_prior_noise", "fed_prior_shuffled", "share_best")  # which send less often by default
METHODS: dict[str, dict[str, Any]] = {
    name: {"name": name, **({"every": 1} if name in OFTEN else {})}
    for name in ("gp_ei", "ts", "random", *(name for one, controls in CONTROLS.items() for name in (one, *controls)), "pooled")
} | {"pooled_ei": {"name": "pooled", "improvement": True, "clip": 0.0}}
EARLIER = {"history": {"algorithm": "ts", "observations": 30, "initial": 3}}  # an earlier task of every agent
PEOPLE = {"targets": [*range(6, 12)], **EARLIER}
HELD_OUT = {"part": "held_out"}
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "convolution_milo": ({"name": "gpu_kernels", "kernel": "convolution_milo"}, {}),
    "landmine": ({"name": "landmine"}, {"targets": [*range(15, 29, 2)], **EARLIER}),
    "lcbench": ({"name": "lcbench", "agents": 8, **HELD_OUT}, {}),
    "xgboost": ({"name": "xgboost_tasks", "agents": 8, **HELD_OUT}, {}),
    "wisdm": ({"name": "wisdm"}, PEOPLE),
    "mlp": ({"name": "mlp_tasks", **HELD_OUT}, {}),
    "nas": ({"name": "nas_tasks", **HELD_OUT}, {}),
    "fcnet": ({"name": "fcnet", **HELD_OUT}, {}),
    "writers": ({"name": "writers"}, PEOPLE),
}


def study_of(task: str, replicates: int) -> Study:
    """Make the study of all methods on a task."""
    objective, agents = TASKS[task]
    return load_study(
        {
            "study": {"name": f"ceiling-{task}", "seed": 3, "replicates": replicates},
            "objective": objective,
            "agents": {"initial": 3, **agents},
            "budget": {"iterations": TIMES[-1]},
            "exchange": {"mode": "barrier"},
            "hosting": {"kind": "inline", "workers": 0},
            "algorithm": [{**table, "label": label} for label, table in METHODS.items()],
        }
    )


def result_of(study: Study, out: Path) -> Result:
    """Run a study, or open or resume the run in a folder."""
    if unfinished(out):
        return fedbo.resume(out)
    return Result.open(out) if (out / "observations.parquet").is_file() else fedbo.run(study, out=out)


def best_of(result: Result) -> dict[str, Array]:
    """Return the best score so far of each method, `(replicates, agents, times)`; NaN before the first success."""
    found: dict[str, dict[int, dict[int, Array]]] = {}
    for trace in result.traces:
        row = trace.at("iteration", np.array(TIMES, dtype=np.float64))
        found.setdefault(trace.algorithm, {}).setdefault(trace.replicate, {})[trace.agent] = row
    return {
        name: np.array([[own[agent] for agent in sorted(own)] for _, own in sorted(rows.items())])
        for name, rows in found.items()
    }


def shares(result: Result, native: dict[str, Array]) -> dict[str, Array]:
    """Return the same in per cent of an agent's range; before its first success an agent has its worst score."""
    seen: dict[int, list[Array]] = {}
    for trace in result.traces:
        seen.setdefault(trace.agent, []).append(trace.score[np.isfinite(trace.score)])
    ends = np.array([(scores.min(), scores.max()) for scores in (np.concatenate(seen[agent]) for agent in sorted(seen))])
    low, span = ends[:, 0, None], np.maximum(np.ptp(ends, axis=1), 1e-300)[:, None]
    return {name: 100.0 * (np.where(np.isnan(rows), low, rows) - low) / span for name, rows in native.items()}


def interval(apart: Array) -> str:
    """Write a mean with its 95 % interval."""
    low, high = ttest_1samp(apart, 0.0).confidence_interval(0.95)
    return f"{apart.mean():+.1f} ± {(high - low) / 2:.1f}"


def chance(apart: Array) -> float:
    """Return the p value of paired differences `(n,)`."""
    return float(ttest_1samp(apart, 0.0).pvalue) if np.ptp(apart) else 1.0


def tables(task: str, result: Result) -> str:
    """Write values with the distances to the ceilings, the paired differences, and those of each agent."""
    native, metric = best_of(result), result.metric()
    share = shares(result, native)
    mean = {name: rows.mean(axis=1) for name, rows in share.items()}  # (replicates, times)
    agents, count = share["gp_ei"].shape[1], len(mean["gp_ei"])
    heads = [f"t = {t}" for t in TIMES]
    tail = [f"minus `{name}`, t = {TIMES[-1]}" for name in CEILINGS]
    lines = [f"\n## `{task}`: {agents} agents, {count} replicates; {metric.name}\n"]
    lines += [f"| | {' | '.join([*heads, *(f'{t}, %' for t in TESTED), *tail])} |", "|---" * (len(heads) + 5) + "|"]
    for name, rows in share.items():
        values = [f"{float(metric.native(value)):.4g}" for value in np.nanmean(native[name], axis=(0, 1))]
        cells = [*values, *(f"{rows.mean(axis=(0, 1))[TIMES.index(t)]:.1f}" for t in TESTED)]
        cells += [interval((mean[name] - mean[one])[:, -1]) if one != name else "" for one in CEILINGS]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, *differences(mean), *sites(result, share)])


def differences(mean: dict[str, Array]) -> list[str]:
    """Write the paired differences of methods, `(replicates, times)` each, with Holm's correction over all of them."""
    pairs = [(one, other) for one, controls in CONTROLS.items() for other in (*LOCAL, *controls, *CEILINGS)]
    pairs += [(one, other) for one in CEILINGS for other in LOCAL]
    apart = {(one, other, t): (mean[one] - mean[other])[:, TIMES.index(t)] for one, other in pairs for t in TESTED}
    corrected = dict(zip(apart, holm([chance(values) for values in apart.values()]), strict=True))
    lines = [f"\n| | minus | {' | '.join(f't = {t} | p' for t in TESTED)} |", "|---" * (2 + 2 * len(TESTED)) + "|"]
    for one, other in pairs:
        cells = [f"{interval(apart[one, other, t])} | {corrected[one, other, t]:.2g}" for t in TESTED]
        lines.append(f"| `{one}` | `{other}` | {' | '.join(cells)} |")
    return lines


def overall(results: dict[str, Result]) -> str:
    """Write the mean scores over federations, and the differences over all replicates and over federations."""
    mean = [{name: rows.mean(axis=1) for name, rows in shares(one, best_of(one)).items()} for one in results.values()]
    lines = [f"\n## All {len(results)} federations\n", f"| t = {TIMES[-1]}, % | {' | '.join(results)} | mean |"]
    lines.append("|---" * (len(results) + 2) + "|")
    for name in mean[0]:
        ends = [rows[name][:, -1].mean() for rows in mean]
        lines.append(f"| `{name}` | {' | '.join(f'{value:.1f}' for value in [*ends, np.mean(ends)])} |")
    replicates = {name: np.concatenate([rows[name] for rows in mean]) for name in mean[0]}
    federations = {name: np.array([rows[name].mean(axis=0) for rows in mean]) for name in mean[0]}
    lines += ["\nOver all replicates:", *differences(replicates), "\nOver federations, each of which counts once:"]
    return "\n".join([*lines, *differences(federations)])


def sites(result: Result, share: dict[str, Array]) -> list[str]:
    """Write what each method gains over `gp_ei` at each of at most eight agents, Holm's correction over all of them."""
    federation: Any = result.study.federation()
    names = getattr(federation, "agent_names", None)
    if names is None or len(names) > 8:
        return []
    best = np.array([federation.objective(agent, None, None).best_value for agent in range(len(names))])
    methods = (*CONTROLS, *CEILINGS)
    apart = {(one, site): (share[one] - share["gp_ei"])[:, site, -1] for one in methods for site in range(len(names))}
    corrected = dict(zip(apart, holm([chance(values) for values in apart.values()]), strict=True))
    lines = [f"\n| minus `gp_ei`, t = {TIMES[-1]} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for one in methods:
        marked = [f"{interval(apart[one, site])}{' *' if corrected[one, site] < 0.05 else ''}" for site in range(len(names))]
        lines.append(f"| `{one}` | {' | '.join(marked)} |")
    lines += [
        f"\n| log time over the least one, t = {TIMES[-1]} | {' | '.join(names)} | mean |",
        "|---" * (len(names) + 2) + "|",
    ]
    regrets = {f"`{name}`": (best - rows[:, :, -1]).mean(axis=0) for name, rows in best_of(result).items()}
    for name, row in (regrets | {"tables of the others, t = 1": transferred(federation)}).items():
        lines.append(f"| {name} | {' | '.join(f'{value:.3f}' for value in [*row, row.mean()])} |")
    return lines


def transferred(federation: Any) -> Array:
    """Return the log time over the least one `(N,)` of what the complete tables of all other GPUs choose for each."""
    tables = [federation.objective(agent, None, None).table for agent in range(federation.n_agents)]
    times = np.log([np.where(one.place >= 0, one.time[one.place], np.nan) for one in tables])
    regret = times - np.nanmin(times, axis=1, keepdims=True)
    found = []
    for agent in range(len(regret)):
        others = np.delete(regret, agent, axis=0).mean(axis=0)  # NaN where one fails
        found.append(float(regret[agent, np.nanargmin(others)]))
    return np.array(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tasks in turn and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("ceiling"))
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args(arguments)
    results = {}
    for task in given.tasks:
        out = given.out / task
        if not given.show or ((out / "observations.parquet").is_file() and not unfinished(out)):
            results[task] = result_of(study_of(task, given.replicates), out)
            print(tables(task, results[task]), flush=True)
    if len(results) > 1:
        print(overall(results))


if __name__ == "__main__":
    main()
