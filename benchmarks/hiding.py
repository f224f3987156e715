"""Which hiding pays? Messages made coarser, noisier, fewer or rarer, or summed: leakage and loss of each; prints Markdown.

    python benchmarks/hiding.py --out FILE [--half held-out] [--methods NAME ...] [--variants NAME ...] [--seeds 5]

Each variant of a method runs in the five families of `fedbo_leak.table` and in the ten federations of the development half of
`federations.py`, or in the held-out half alone; ten decisions after three random points, all agents in turn. The cheap attacks
of the plug-in `fedbo-leak` attack the messages as they are sent. Every line of FILE is a variant in a federation; run it again
to continue.

- `coarse b`: points lie in the middle of cells of which an input has 2^b; other numbers have 2^b levels from the least to the
  largest of a message. The same number gives the same bits, so that nothing averages out.
- `noise s`: normal noise with s of the box, or of the standard deviation of a message's numbers, and the same for the same one.
- `every k`: a message after each k-th decision. It is the control: a change pays if it leaks less than the rarest messages with
  the same gain.
- `sums`: what a reader gets if only sums leave an aggregation that is secure.

Scores are in per cent of an agent's range, from the worst to the best value of any variant of the same method with that seed; a
gain is over `gp_ei`. Leakage is to a curious coordinator, or with sums to a reader. Differences are over federations, each
counted once, with 95 % of Student's t and Holm's correction over all changes of all methods.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import ttest_1samp

sys.path.insert(0, str(Path(__file__).parent))

from federations import DECISIONS, INITIAL, functions  # noqa: E402
from federations import federations as drawn  # noqa: E402

from fedbo.algorithms.base import Inbound, Payload, Problem  # noqa: E402
from fedbo.algorithms.catalog import entry  # noqa: E402
from fedbo.analysis.summary import holm  # noqa: E402
from fedbo.objectives.catalog import catalogue  # noqa: E402
from fedbo_leak.attacks import best_point, membership, observations  # noqa: E402
from fedbo_leak.lockstep import Hide, Values, values_of, watch_lockstep  # noqa: E402
from fedbo_leak.measuring import CHEAP, measure  # noqa: E402
from fedbo_leak.readings import COORDINATOR, READER  # noqa: E402
from fedbo_leak.table import FEDERATIONS  # noqa: E402

POINTS = ("x",)  # fields of messages that hold points of the unit cube
SHOWN = (best_point.BEST, observations.POINTS, observations.VALUES, membership.MEMBER)


def coarse(bits: int, message: Inbound) -> Payload:
    """Round every number of a message."""
    return {name: _rounded(array, bits, name in POINTS) for name, array in message.payload.items()}


def _rounded(array: Any, bits: int, is_point: bool) -> Any:
    cells = 2.0**bits
    low, width = (0.0, 1.0) if is_point else (float(array.min()), float(np.ptp(array)) or 1.0)
    return low + width * (np.clip(np.floor((array - low) / width * cells), 0, cells - 1) + 0.5) / cells


def noisier(size: float, message: Inbound) -> Payload:
    """Add noise to every number of a message, drawn by what it says."""
    found = {}
    for name, array in message.payload.items():
        drawn = np.random.default_rng([message.sender, *array.tobytes()[:64]]).standard_normal(array.shape)
        scale = 1.0 if name in POINTS else float(np.std(array))
        found[name] = array + size * scale * drawn
        if name in POINTS or name == "certainty":
            found[name] = np.clip(found[name], 0.0, 1.0)
    return found


class Variant(NamedTuple):
    """A method with settings, a change of its messages, and whether only sums leave the aggregation."""

    method: str
    settings: dict[str, Any]
    hide: Hide | None = None
    view: str = COORDINATOR


def _variants(method: str, plain: dict[str, Any], rarer: Sequence[int], **others: Variant) -> dict[str, Variant]:
    found = {"as it is": Variant(method, plain)}
    found |= {f"every {k}" if k else "once": Variant(method, {**plain, "every": k}) for k in rarer}
    found |= {f"coarse {bits}": Variant(method, plain, partial(coarse, bits)) for bits in (3, 2, 1)}
    found |= {f"noise {size}": Variant(method, plain, partial(noisier, size)) for size in (0.1, 0.3)}
    return {**found, **{name.replace("_", " "): one for name, one in others.items()}}


VARIANTS: dict[str, dict[str, Variant]] = {
    "trust_best": _variants("trust_best", {"every": 1}, (3, 0)),
    "share_best": _variants(
        "share_best",
        {"every": 1},
        (3, 0),
        votes=Variant("dp_share_best", {"every": 0}),
    ),
    "fed_prior": _variants(
        "fed_prior",
        {"every": 1},
        (3, 0),
        fewer_points=Variant("fed_prior", {"every": 1, "points": 16}),
        sums=Variant("fed_prior", {"every": 1, "directions": 0}, view=READER),
        bare_sums=Variant("dp_fed_prior", {"noise_multiplier": 1e-3}, view=READER),
        noisy_sums=Variant("dp_fed_prior", {}, view=READER),
    ),
    "fts": _variants(
        "fts",
        {"every": 1},
        (3, 0),
        fewer_features=Variant("fts", {"every": 1, "features": 25}),
        sums=Variant("fts_de", {"regions": 1}, view=READER),
        noisy_sums=Variant("dp_fts", {}, view=READER),
    ),
}
ALONE = Variant("gp_ei", {})


class Place(NamedTuple):
    """A federation: its name, and its inputs, agents, functions and definition with a seed."""

    name: str
    of: Callable[[int], tuple[int, int, Values, Any]]


def places(half: str) -> Iterator[Place]:
    """Yield the five families and the development half of the drawn federations, or the held-out half."""
    for name, table in FEDERATIONS.items() if half == "development" else ():
        made = catalogue()[name](**{key: value for key, value in table.items() if key != "name"})
        yield Place(name, lambda seed, made=made: (len(made.parameters), made.n_agents, values_of(made, seed), made))
    for one in sorted(drawn(), key=lambda one: one.model == "network"):  # the slowest last
        if one.half == half:
            yield Place(one.name, partial(_drawn, one))


def _drawn(one: Any, seed: int) -> tuple[int, int, Values, None]:
    dim, now, _ = functions(one, seed)
    return dim, len(now), lambda x, agent: np.array([now[agent](u) for u in x]), None


def cell(place: Place, variant: Variant, seeds: int) -> dict[str, Any]:
    """Run a variant in a federation with all seeds; return the agents' best values by seed and decision, and the attacks."""
    heard, best = [], []
    for seed in range(seeds):
        dim, agents, values, federation = place.of(seed)
        problem = Problem(dim, agents, tuple(range(agents)), INITIAL, DECISIONS)
        made = entry(variant.method).make(**variant.settings)
        heard.append(watch_lockstep(made, problem, values, seed, federation, variant.hide))
        curves = [
            [float(one.y[one.step <= t].max()) for t in range(DECISIONS + 1)] for _, one in sorted(heard[-1].agents.items())
        ]
        best.append(curves)
    rows = [asdict(row) for row in measure("", heard, (*{variant.view: 0, READER: 0},), CHEAP) if row.strongest]
    return {"best": best, "rows": rows}


def results(methods: Sequence[str], half: str, seeds: int, out: Path) -> dict[tuple[str, str, str], Any]:
    """Return the cells of a file by federation, method and variant; run the others."""
    found: dict[tuple[str, str, str], Any] = {}
    for line in out.read_text().splitlines() if out.exists() else []:
        row = json.loads(line)
        found[row["place"], row["method"], row["variant"]] = row
    for place in places(half):
        for method in ("", *methods):
            for name, variant in {"alone": ALONE}.items() if not method else VARIANTS[method].items():
                if (key := (place.name, method, name)) not in found:
                    found[key] = {"place": place.name, "method": method, "variant": name, **cell(place, variant, seeds)}
                    with out.open("a") as file:
                        file.write(json.dumps(found[key]) + "\n")
                    print(*key, file=sys.stderr, flush=True)
    return found


def ends(found: dict[tuple[str, str, str], Any], place: str, method: str) -> dict[str, float]:
    """Return the mean score of each variant of a method, and of agents alone, after the last decision."""
    held = {name: np.array(row["best"]) for (where, of, name), row in found.items() if where == place and of in ("", method)}
    together = np.stack([*held.values()])  # (variants, seeds, agents, 1 + DECISIONS)
    low, high = together.min(axis=(0, 3)), together.max(axis=(0, 3))
    span = np.where(high > low, high - low, 1.0)
    return {name: float(np.mean(100.0 * (values[:, :, -1] - low) / span)) for name, values in held.items()}


def leakages(row: dict[str, Any], view: str) -> dict[str, float]:
    """Return the leakage to a view by target, the largest of all, and that to a reader; nothing to attack is none."""
    found = {(one["view"], one["target"]): one["leakage"] for one in row["rows"]}
    each = {target: found.get((view, target), 0.0) for target in SHOWN}
    return {**each, "most": max(each.values()), READER: max(found.get((READER, target), 0.0) for target in SHOWN)}


def table(found: dict[tuple[str, str, str], Any], methods: Sequence[str]) -> Iterator[str]:
    """Write gain, loss and leakage of each variant, each federation counted once."""
    names = [*dict.fromkeys(place for place, _, _ in found)]
    chances: dict[tuple[str, str], float] = {}
    lines: dict[tuple[str, str], list[str]] = {}
    for method in methods:
        score = {place: ends(found, place, method) for place in names}
        leaked = {
            (place, name): leakages(found[place, method, name], variant.view)
            for place in names
            for name, variant in VARIANTS[method].items()
        }
        for name in VARIANTS[method]:
            gain = np.array([score[place][name] - score[place]["alone"] for place in names])
            loss = np.array([score[place]["as it is"] - score[place][name] for place in names])
            less = np.array([leaked[place, "as it is"]["most"] - leaked[place, name]["most"] for place in names])
            if name != "as it is":
                chances[method, name] = float(ttest_1samp(less, 0.0).pvalue) if np.ptp(less) else 1.0
            parts = [f"`{method}`", name, _with(gain), "" if name == "as it is" else _with(loss)]
            parts += [f"{np.mean([leaked[place, name][what] for place in names]):.2f}" for what in (*SHOWN, "most", READER)]
            lines[method, name] = [*parts, "" if name == "as it is" else _with(less, ".2f")]
    corrected = dict(zip(chances, holm([*chances.values()]), strict=True))
    yield f"{len(names)} federations"
    yield ""
    yield f"| method | messages | gain | loss | {' | '.join(SHOWN)} | most | reader | less by | p |"
    yield "|---" * (len(SHOWN) + 8) + "|"
    for key, parts in lines.items():
        yield f"| {' | '.join(parts)} | {f'{corrected[key]:.2g}' if key in corrected else ''} |"


def _with(values: Any, form: str = "+.1f") -> str:
    half = ttest_1samp(values, 0.0).confidence_interval(0.95) if np.ptp(values) else (0.0, 0.0)
    return f"{values.mean():{form}} ± {(half[1] - half[0]) / 2:{form.lstrip('+')}}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=VARIANTS, default=[*VARIANTS])
    parser.add_argument("--half", choices=("development", "held-out"), default="development")
    parser.add_argument("--variants", nargs="+", help="besides the messages as they are; default: all")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args(arguments)
    if given.variants:
        for known in VARIANTS.values():
            for name in known.keys() - {"as it is", *given.variants}:
                del known[name]
    print("\n".join(table(results(given.methods, given.half, given.seeds, given.out), given.methods)))


if __name__ == "__main__":
    main()
