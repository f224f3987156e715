"""Tables of the same studies from this working tree and from an earlier revision, compared by value.

The revision is installed from git into a temporary folder, with the libraries of this environment. Fourteen studies cover
every exchange mode, faults, privacy, bandits, ADMM, transfer, histories and pulls; `--random` adds random ones.

    python benchmarks/same_tables.py [REVISION] [--random 50] [--first 0]

Events that an earlier format stored as text are converted first. A column that only one of the two has is reported, and the
others are compared. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from against import default_revision, installed

Document = dict[str, Any]
TABLES = ("observations", "events", "histories", "privacy", "privacy_agents")
_SURROUNDINGS: Document = {
    "timing": {
        "evaluation": {"model": "lognormal", "mean": 1.0, "sigma": 0.8},
        "latency": {"model": "gamma", "mean": 0.3, "shape": 1.0},
        "speed": {"factors": [1.0, 3.0]},
    },
    "network": {"bandwidth": 4000.0, "retry": 1.0},
}
_FAULTS: list[Document] = [
    {"kind": "loss", "probability": 0.15},
    {"kind": "duplication", "probability": 0.1, "by": 0.5},
    {"kind": "delay", "probability": 0.2, "by": 1.5},
    {"kind": "reordering", "probability": 0.2, "by": 0.7},
    {"kind": "corruption", "probability": 0.05, "how": "bits"},
    {"kind": "crash", "rate": 0.03, "restart": 1.0, "state": "lost"},
    {"kind": "hang", "at": 3.0, "duration": 1.5, "agents": [0]},
    {"kind": "slow", "at": 2.0, "duration": 4.0, "factor": 3.0},
    {"kind": "partition", "at": 4.0, "duration": 2.0, "agents": [1]},
    {"kind": "coordinator", "at": 5.0, "duration": 1.0},
]
_FTS = {"name": "fts", "every": 1, "features": 30, "own": {"surrogate": "features", "features": 30, "length_scale": 0.2}}
_PRIVATE = {"name": "dp_fts_de", "features": 30, "length_scale": 0.2, "noise_multiplier": 1.0, "own": {"surrogate": "features"}}


def _study(name: str, algorithm: Document | list[Document], objective: Document, **tables: Any) -> Document:
    several = algorithm if isinstance(algorithm, list) else [algorithm]
    document: Document = {"study": {"name": name, "seed": 7}, "objective": objective, "algorithm": several, **_SURROUNDINGS}
    return {**document, "budget": {"iterations": 6}, **tables}


def chosen() -> list[Document]:
    """Give the studies that are compared in any case."""
    branin = {"name": "branin", "agents": 5}
    tree = {"name": "garland", "agents": 4}
    markov = {"model": "markov", "present": 6.0, "absent": 1.0, "leaving": "resumed"}
    return [
        _study("immediate", _FTS, branin, exchange={"mode": "immediate"}, fault=_FAULTS),
        _study("buffered", _FTS, branin, exchange={"mode": "buffered", "k": 2}, availability=markov),
        _study(
            "barrier",
            _FTS,
            branin,
            exchange={"mode": "barrier"},
            fault=_FAULTS,
            study={"name": "barrier", "seed": 3, "replicates": 2},
        ),
        _study("first_k", _FTS, branin, exchange={"mode": "first_k", "k": 3, "late": "carry"}, fault=_FAULTS[:4]),
        _study("deadline", _FTS, branin, exchange={"mode": "deadline", "length": 2.0, "late": "drop"}, fault=_FAULTS[4:]),
        _study("private", _PRIVATE, branin, exchange={"mode": "barrier"}, fault=_FAULTS[:2]),
        _study("fed_pne", [{"name": "fed_pne"}, {"name": "dp_fed_pne"}], tree, budget={"pulls": 150}),
        _study("trees", [{"name": "hct"}, {"name": "t_hoo"}, {"name": "fn_ucb"}], tree, budget={"pulls": 40}),
        _study("admm", {"name": "admm_consensus"}, {"name": "plants", "agents": 3}, exchange={"mode": "first_k", "k": 2}),
        _study("transfer", [{"name": "rgpe", "every": 1}, {"name": "taf", "every": 1}], branin),
        _study("histories", [_FTS, {"name": "ts"}], branin, agents={"history": {"algorithm": "random", "observations": 5}}),
        _study("pulls", {"name": "gp_ei", "refit": 3}, branin, budget={"pulls": 9}, evaluation={"retries": 1}),
        _study("pooled", [{"name": "pooled"}, {"name": "random"}], branin, exchange={"mode": "immediate"}, fault=_FAULTS[:5]),
        _study("selection", _FTS, branin, exchange={"mode": "barrier", "selection": {"who": "speed", "share": 0.6}}),
    ]


def drawn(first: int, count: int) -> list[Document]:
    """Draw random studies by this working tree's generator."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.random_studies.studies import draw_study

    return [draw_study(seed)[0] for seed in range(first, first + count)]


def carry_out(documents: list[Document], folder: Path) -> None:
    """Run the studies with whatever package can be imported; how one ended otherwise than well stands in a file."""
    import fedbo

    for number, document in enumerate(documents):
        directory = folder / str(number)
        try:
            fedbo.run(fedbo.load_study(document, trust=True), out=directory)
        except Exception as error:
            directory.mkdir(exist_ok=True)
            cause = error.__cause__ or error
            (directory / "ended.txt").write_text(f"{type(cause).__name__}: {cause}")


# An editable install is found by a finder of its own, which must not stand before the folder.
_IN_PROCESS = """
import json, sys
from pathlib import Path
sys.meta_path = [one for one in sys.meta_path if "__editable__" not in str(getattr(one, "__module__", ""))]
sys.path.insert(0, sys.argv[1])
import fedbo
assert fedbo.__file__.startswith(sys.argv[1]), fedbo.__file__
sys.path.insert(1, sys.argv[2])
sys.path.append(str(Path(sys.argv[2]).parent))  # of the functions of random studies
import same_tables
same_tables.carry_out(json.loads(Path(sys.argv[3]).read_text()), Path(sys.argv[4]))
"""


def in_process(target: Path, studies: Path, out: Path) -> None:
    """Carry the studies of a file out with what is installed in a folder."""
    out.mkdir()
    surroundings = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-c", _IN_PROCESS, str(target), str(Path(__file__).parent), str(studies), str(out)]
    subprocess.run(command, check=True, env=surroundings, cwd=target, stdout=subprocess.DEVNULL)


def differences(old: Path, new: Path) -> tuple[list[str], int]:
    """Compare one study's tables; give what differs, and how many rows were compared."""
    found, rows = [], 0
    ended = [path.read_text() if (path := side / "ended.txt").exists() else "" for side in (old, new)]
    if ended[0].startswith("StudyError") and not ended[1].startswith("StudyError"):
        return ["only one has what this study names: the older one refuses it"], 0
    if ended[0].partition(":")[0] != ended[1].partition(":")[0]:  # the words differ: they name the folder of the tables
        return [f"ended with {ended[0]!r}, now with {ended[1]!r}"], 0
    for name in TABLES:
        paths = [side / f"{name}.parquet" for side in (old, new)]
        if not any(path.exists() for path in paths):
            continue
        if not all(path.exists() for path in paths):
            found.append(f"{name}: only one of the two has it")
            continue
        before, after = map(pq.read_table, paths)
        other = sorted(set(before.column_names) ^ set(after.column_names))
        both = [column for column in before.column_names if column in after.column_names]
        rows += after.num_rows
        if before.num_rows != after.num_rows:
            found.append(f"{name}: {before.num_rows} rows, now {after.num_rows}")
        else:
            changed = [column for column in both if _values(before, column) != _values(after, column)]
            found += [f"{name}: other values in {', '.join(changed)}"] if changed else []
        found += [f"{name}: columns that only one has: {', '.join(other)}"] if other else []
    return found, rows


def _values(table: pa.Table, column: str) -> str:
    """Give a column's values in words, where equal bits are equal words; of an error its first line, for paths follow."""
    values = table[column].to_pylist()
    return repr([value and value.splitlines()[0] for value in values] if column == "error" else values)


def main() -> None:
    """Carry the studies out with both, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("revision", nargs="?")
    parser.add_argument("--random", type=int, default=0, help="number of random studies in addition to the fourteen")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random study")
    given = parser.parse_args()
    revision = given.revision or default_revision()
    documents = chosen() + drawn(given.first, given.random)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "studies.json").write_text(json.dumps(documents))
        for side, source in (("old", revision), ("new", None)):
            target = installed(source, folder / side)
            in_process(target, folder / "studies.json", folder / f"tables-{side}")
        total = other = ended = 0
        for number, document in enumerate(documents):
            pair = [folder / f"tables-{side}" / str(number) for side in ("old", "new")]
            found, rows = differences(pair[0], pair[1])
            real = [one for one in found if "only one has" not in one]
            total, other, ended = total + rows, other + bool(real), ended + (pair[1] / "ended.txt").exists()
            for one in found:
                print(f"{document['study']['name']}: {one}", flush=True)
            if number < 14 and (pair[1] / "ended.txt").exists():
                print(f"{document['study']['name']}: {(pair[1] / 'ended.txt').read_text()[:200]}")
    print(f"{len(documents)} studies, {total} rows, {ended} ended early: {other} differ", end="")
    print(f" from {revision}")
    sys.exit(bool(other))


if __name__ == "__main__":
    main()
