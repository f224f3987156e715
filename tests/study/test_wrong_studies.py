"""What a wrong study file is told: one line with the place, what came, and the remedy."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from right_study import AGENTS, BUDGET, NAME, RIGHT, SEED, added, changed

from fedbo.algorithms.catalog import algorithms
from fedbo.objectives.catalog import federations
from fedbo.study.document import StudyError
from fedbo.study.study import load_study

TABLES = (
    "agents, algorithm, availability, budget, cluster, detection, evaluation, exchange, fault, group, hosting, metric, "
    "network, objective, privacy, record, recovery, sites, stopping, study, sweep, timing"
)
CONTROLS = ("_centre", "_noise", "_shuffled", "_uniform")
ALGORITHMS = ", ".join(sorted(each for each in algorithms() if not each.endswith(CONTROLS)))
ALGORITHMS += ", and controls of them (`fedbo list`)"
OBJECTIVES = ", ".join(federations())
DEEP = "tables and lists are nested more than 16 deep; reduce the nesting"
MODEL, LISTED = "no such key; did you mean 'model'?", f"available: {ALGORITHMS}"
QUADRATIC = "agents, cost_spread, differences, dimensions, name, noise, spread"

WRONG: list[tuple[str, str]] = [
    # keys and tables
    (added("[agents]\nintial = 3"), "[agents] intial = 3: no such key; did you mean 'initial'?"),
    (added("[budgets]\niterations = 3"), "[budgets]: no such table; did you mean 'budget'?"),
    (added("[cloud]\nx = 3"), f"[cloud]: no such table; available: {TABLES}"),
    (changed(AGENTS, "agent = 4"), "[objective] agent = 4: no such key; did you mean 'agents'?"),
    (changed(AGENTS, "colour = 4"), f"[objective] colour = 4: no such key; available: {QUADRATIC}"),
    (added("querries = 2"), "[[algorithm]] 1 querries = 2: no such key; did you mean 'queries'?"),
    (added("[timing]\nlatency = {model = 'constant', maen = 1}"),
     "[timing] latency.maen = 1: no such key; did you mean 'mean'?"),
    # what is missing
    (changed(SEED, ""), '[study] name: is missing; add name = "…"'),
    (changed("[budget]\niterations = 5", ""), "[budget]: is missing; add [budget] with iterations = 50"),
    (changed(BUDGET, ""), "[budget] iterations: is missing; add iterations = 50, or pulls = 1000"),
    (changed('[[algorithm]]\nname = "random"', ""), '[algorithm]: is missing; add [[algorithm]] with name = "fts"'),
    (added("[timing]\nlatency = {mean = 1.0}"), "[timing] latency.model: is missing; add model = …"),
    (added("[agents.history]\nalgorithm = 'random'"),
     "[agents.history] observations: is missing; add observations = 50"),
    # names
    (changed('"random"', '"ftz"'),
     f"[[algorithm]] 1 name = 'ftz': no algorithm 'ftz'; did you mean 'fts'? available: {ALGORITHMS}"),
    (changed(NAME, 'name = "digit"'),
     f"[objective] name = 'digit': no objective 'digit'; did you mean 'digits'? available: {OBJECTIVES}"),
    (added("preset = 'faithful'"), "[[algorithm]] 1 preset = 'faithful': no preset 'faithful'; available: none"),
    (added("[timing]\nevaluation = {model = 'lognorm'}"),
     "[timing] evaluation.model = 'lognorm': no timing model 'lognorm'; did you mean 'lognormal'? "
     "available: constant, cost, empirical, exponential, gamma, log_linear, lognormal, pareto"),
    (added("[availability]\nmodel = 'bernouli'"),
     "[availability] model = 'bernouli': no availability model 'bernouli'; did you mean 'bernoulli'? "
     "available: always, bernoulli, daily, markov, trace"),
    (added("[exchange]\nmode = 'barier'"),
     "[exchange] mode = 'barier': no exchange mode 'barier'; did you mean 'barrier'? "
     "available: adaptive, barrier, buffered, deadline, first_k, immediate"),
    (added("[hosting]\nkind = 'cloud'"), "[hosting] kind = 'cloud': must be 'inline', 'dedicated', 'packed' or 'sites'"),
    (added("[agents.history]\nalgorithm = 'rnadom'\nobservations = 5"),
     "[agents.history] algorithm = 'rnadom': no algorithm 'rnadom'; did you mean 'random'? "
     f"available: {ALGORITHMS}"),
    # types
    (changed(BUDGET, "iterations = 5.5"), "[budget] iterations = 5.5: must be a whole number"),
    (changed(BUDGET, "iterations = '5'"), "[budget] iterations = '5': must be a whole number"),
    (changed(SEED, 'name = "right"\nseed = true'), "[study] seed = true: must be a whole number"),
    (changed(SEED, "name = 3"), "[study] name = 3: must be a string in quotes"),
    (changed(AGENTS, "differences = {likness = 0.5}"),
     "[objective] differences.likness = 0.5: no such key; did you mean 'likeness'?"),
    (changed(AGENTS, "differences = {likeness = 1.5}"), "[objective] differences.likeness = 1.5: must be in [0, 1]"),
    (changed(AGENTS, "differences = {scale = -1.0}"), "[objective] differences.scale = -1.0: must be in [0, 10]"),
    (changed(AGENTS, "differences = 3"), "[objective] differences = 3: must be a table"),
    (changed(AGENTS, "differences = {quantity = 1.0}"),
     "[objective] differences.quantity = 1.0: divides the variance of the objective's noise, but "
     "'quadratic' has no noise; remove it, or use an objective with noise"),
    (changed(NAME, "name = 'digits'\ndifferences = {scale = 1.0}"),
     "[objective] differences: 'digits' has no noise-free values at many points; use a synthetic objective"),
    (changed(AGENTS, "agents = 'four'"), "[objective] agents = 'four': must be a whole number"),
    (changed("[[algorithm]]", "[algorithm]"),
     "[algorithm]: is an array of tables; write [[algorithm]]"),
    (added("[agents]\ntargets = 'some'"),
     "[agents] targets = 'some': must be \"all\" or a list of agents, for example [0, 1]"),
    (added("[agents.history]\nalgorithm = 'random'\nobservations = 5\nfresh = 1"),
     "[agents.history] fresh = 1: must be true or false"),
    # ranges
    (changed(BUDGET, "iterations = 0"), "[budget] iterations = 0: must be at least 1"),
    (changed(BUDGET, "iterations = 5\ntime = 0.0"), "[budget] time = 0.0: must be above 0"),
    (changed(BUDGET, "iterations = 5\ntime = inf"), "[budget] time = inf: must be a finite number"),
    (changed(AGENTS, "noise = nan"), "[objective] noise = nan: must be a finite number"),
    (changed(AGENTS, "agents = 0"), "[objective] agents = 0: must be at least 1"),
    (changed(SEED, 'name = "right"\nseed = -1'), "[study] seed = -1: must be at least 0"),
    (changed(SEED, f'name = "right"\nseed = {2**63}'), f"[study] seed = {2**63}: must be below {2**63}"),
    (changed(SEED, 'name = ""'), "[study] name = '': must not be empty"),
    (changed(SEED, 'name = "right"\nreplicates = 0'), "[study] replicates = 0: must be at least 1"),
    (added("[timing]\nevaluation = {model = 'lognormal', mean = -1}"),
     "[timing] evaluation.mean = -1: must be above 0 and finite"),
    (added("[availability]\nmodel = 'bernoulli'\nprobability = 1.5"),
     "[availability] probability = 1.5: must be in [0, 1)"),
    (added("[agents.history]\nalgorithm = 'random'\nobservations = 0"),
     "[agents.history] observations = 0: must be at least 1"),
    (added("[agents]\ninitial = -1"), "[agents] initial = -1: must be at least 0"),
    # what does not go together
    (added("[agents]\ntargets = []"), '[agents] targets = []: must contain at least one agent; use "all" for every agent'),
    (added("[agents]\ntargets = [0, 4]"),
     "[agents] targets = [0, 4]: agent 4 does not exist; this objective has agents 0 to 3"),
    (added("[agents]\ntargets = [1, 2, 1]"),
     "[agents] targets = [1, 2, 1]: agent 1 is listed twice; list each agent once"),
    (added("[[algorithm]]\nname = 'random'"),
     "[[algorithm]] 2 name = 'random': label 'random' belongs to [[algorithm]] 1; choose another label"),
    (added("[hosting]\nkind = 'dedicated'\nworkers = 2"),
     "[hosting] workers = 2: has no effect: dedicated hosting has one worker per agent; remove it"),
    (added("[hosting]\nkind = 'packed'\nworkers = 0"), "[hosting] workers = 0: must be at least 1 for packed hosting"),
    (added("[hosting]\naddress = 'auto'"),
     "[hosting] address = 'auto': has no effect: inline hosting without workers does not start Ray; set workers, or remove it"),
    (added("[hosting]\nkind = 'packed'\nlabels = {zone = 'x'}"),
     "[hosting] labels: have no effect: without an address Ray has one node; set it, or remove them"),
    (added("[hosting]\nkind = 'packed'\naddress = 'auto'\nlabels = {zone = 3}"),
     "[hosting] labels.zone = 3: must be a string in quotes"),
    (added("[timing]\nclock = 'wall'"),
     "[timing] clock = 'wall': requires one process per agent or host; set [hosting] kind to dedicated or packed"),
    (added("[agents.history]\nalgorithm = 'random'\nobservations = 2"),
     "[agents.history] initial: must be at most observations = 2"),
    (changed(SEED, 'name = "right"\nreplicates = 2')
     + "\n[agents.history]\nalgorithm = 'random'\nobservations = 5\nfresh = false\n",
     "[agents.history] fresh = false: 'quadratic' draws new functions for every replicate; set fresh = true"),
    (added("[exchange]\nmode = 'immediate'\n[[algorithm]]\nname = 'fts'\nevery = 0"),
     "[[algorithm]] 2 name = 'fts': sends one message, before the start, and 'immediate' rarely "
     'answers it in time; set [exchange] mode = "barrier", or make it send again'),
    (added("[[algorithm]]\nname = 'fts'\nweights = [1.0, 2.0]"),
     "[[algorithm]] 2 weights = [1.0, 2.0]: must be one number for each of the 4 agents, not 2"),
    # sweeps
    (added("[sweep]\n'hosting.workers' = [0, 2]"),
     "[sweep] \"hosting.workers\" = [0, 2]: does not change results, so it cannot be swept; remove it"),
    (added("[sweep]\n'algorithm.random.label' = ['a', 'b']"),
     "[sweep] \"algorithm.random.label\" = [\"a\", \"b\"]: does not change results, so it cannot be swept; remove it"),
    (added('[sweep]\n"objective.agnets" = [1]'),
     "[sweep] \"objective.agnets\" = [1]: no such key; did you mean 'agents'?"),
    (added('[sweep]\n"objective.spread" = [0.1, "wide"]'),
     "[sweep] \"objective.spread\" = [0.1, \"wide\"]: 'wide' must be a number"),
    (added('[sweep]\n"objective.spread" = 0.1'), '[sweep] "objective.spread" = 0.1: must be a list'),
    (added('[sweep]\n"objective.spread" = []'), '[sweep] "objective.spread" = []: must not be empty'),
    (added('[sweep]\n"algorithm.fts.features" = [50]'),
     '[sweep] "algorithm.fts.features" = [50]: must start with the label of an algorithm and a dot; '
     "labels: random"),
    (added('[agents]\ntargets = [3]\n[sweep]\n"objective.agents" = [4, 2]'),
     "[sweep]: with objective.agents = 2: [agents] targets = [3]: agent 3 does not exist; this "
     "objective has agents 0 to 1"),
    (added('[sweep]\n"objective.spread" = [0.1, 0.5, 0.1]'),
     '[sweep] "objective.spread" = [0.1, 0.5, 0.1]: 0.1 is listed twice; list each value once'),
    (added('[sweep]\n"objective.spread" = [1, 1.0]'),
     '[sweep] "objective.spread" = [1, 1.0]: 1.0 is listed twice; list each value once'),
    # sizes
    (changed(AGENTS, "agents = 2000001"), "[objective] agents = 2000001: must be at most 2,000,000"),
    (changed(AGENTS, f"dimensions = {10**18}"), f"[objective] dimensions = {10**18}: must be at most 1,000"),
    (changed(BUDGET, f"iterations = {10**18}"), f"[budget] iterations = {10**18}: must be at most 1,000,000,000"),
    (added(f"[agents]\ninitial = {10**9}"), f"[agents] initial = {10**9}: must be at most 1,000,000"),
    (added(f"[hosting]\nworkers = {10**9}"), f"[hosting] workers = {10**9}: must be at most 10,000"),
    (changed(SEED, 'name = "right"\nreplicates = 50000') + "\n[[algorithm]]\nname = 'ts'\n[[algorithm]]\nname = 'fts'\n",
     "[study] replicates = 50000: makes 150,000 runs of all cells and algorithms; lower it, for at "
     "most 100,000 runs"),
    (added(f'[sweep]\n"objective.spread" = {[n / 1000 for n in range(101)]}\n"study.seed" = {list(range(100))}'),
     "[sweep]: has 10,100 cells; use fewer values, for at most 10,000 cells"),
    # names
    (changed(SEED, 'name = "two\\nlines"'),
     "[study] name = 'two\\nlines': contains the control character U+000A; use a name on one line"),
    (changed(SEED, 'name = "a/b"'), "[study] name = 'a/b': holds '/', but a folder is named after it; use '-' instead"),
    (changed(SEED, 'name = "  "'), "[study] name = '  ': must not be empty"),
    (changed(SEED, f'name = "{"n" * 201}"'), f"[study] name = '{'n' * 58}…: has 201 bytes; use a name of at most 200 bytes"),
    (added('label = "\\u001b[31m"'),
     "[[algorithm]] 1 label = '\\x1b[31m': contains the control character U+001B; use a name on one "
     "line"),
    (added(f'label = "{"é" * 101}"'), f"[[algorithm]] 1 label = '{'é' * 58}…: has 202 bytes; use a name of at most 200 bytes"),
    (added('[[group]]\nname = "a\\u0085"\nagents = [1]'),
     "[[group]] 1 name = 'a\\x85': contains the control character U+0085; use a name on one line"),
    # no study at all
    (f"a = {'[' * 20_000}{']' * 20_000}", "tables and lists are nested more than 16 deep; reduce the nesting"),
    (f"[{'a.' * 20_000}a]", "tables and lists are nested more than 16 deep; reduce the nesting"),
    (changed(SEED, f'name = "right"\nseed = {"9" * 5000}'),
     "not TOML (Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits); write a smaller number"),
    ("[study]\nname = \n", "line 2, column 8: not TOML (invalid value); write strings in quotes and tables in [brackets]"),
    (changed("[budget]", "[study]"),
     "line 8, column 7: not TOML (cannot declare ('study',) twice); write strings in quotes and tables in [brackets]"),
    (" \n", "the file is empty; it needs [study], [objective], [budget] and one [[algorithm]]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), WRONG, ids=[line[:60] for _, line in WRONG])
def test_a_wrong_study_is_told_in_one_line_what_is_wrong_and_what_would_do(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(StudyError, match=r"^study\.toml: ") as caught:
        load_study("study.toml")
    assert str(caught.value) == f"study.toml: {line}"


def test_the_study_they_all_differ_from_is_right(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(RIGHT, encoding="utf-8")
    assert load_study(path).labels == ("random",)


def test_faults_in_several_places_are_all_told_each_in_a_line_of_its_own() -> None:
    with pytest.raises(StudyError, match="seed") as caught:
        load_study({"study": {"name": "x", "seed": -1}, "objective": {"name": "quadratic"}, "algorithm": 3, "budget": {}})
    assert str(caught.value).splitlines() == [
        "study: [study] seed = -1: must be at least 0",
        "study: [budget] iterations: is missing; add iterations = 50, or pulls = 1000",
        "study: [algorithm] = 3: must be a list",
    ]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("budget.iterations=0", "--set: [budget] iterations = 0: must be at least 1"),
        ("budget.iteration=3", "--set: [budget] iteration = 3: no such key; did you mean 'iterations'?"),
        ("algorithm.fts.p=1", "--set algorithm.fts.p: must start with the label of an algorithm and a dot; labels: random"),
        ("iterations", "--set iterations: is not key=value; write, for example, --set budget.iterations=20"),
        ("study.name=@", "--set study.name=@: @ is not a TOML value; put strings in quotes"),
        (f"{'a.' * 9000}b=1", f"--set {'a.' * 29}a…: {DEEP}"),
        (f"study.x={'[' * 9000}", f"--set study.x={'[' * 51}…: {DEEP}"),
        ("study.name=", "--set study.name=: nothing is not a TOML value; put strings in quotes"),
        ("study..seed=3", "--set study..seed: has nothing before, between or after dots; write, for example, study.replicates"),
        ('fault={kind="loss"}', "--set: [fault]: is an array of tables; write --set 'fault=[{…}]'"),
        ("sweep=3", "--set: [sweep] = 3: must be a table"),
        ("timing.latency={modle='constant'}", f"--set: [timing] latency.modle = 'constant': {MODEL}"),
        (
            "sweep={timing=[{latency={modle='constant'}}]}",
            f"--set: [sweep] \"timing\": entry 1, latency.modle = 'constant': {MODEL}",
        ),
        ("algorithm.random.name=FTS", f"--set: [[algorithm]] 1 name = 'FTS': no algorithm 'FTS'; did you mean 'fts'? {LISTED}"),
    ],
)
def test_a_wrong_override_is_told_apart_from_a_wrong_file(override: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(RIGHT, encoding="utf-8")
    with pytest.raises(StudyError, match="^--set") as caught:
        load_study(path, [override])
    assert str(caught.value) == line


@pytest.mark.parametrize("owner", ["timing", "group"])
@pytest.mark.parametrize("key", ["evaluation", "speed", "decision", "latency"])
def test_a_table_of_the_timing_is_shown_by_an_example(owner: str, key: str) -> None:
    table = {"timing": {key: 1}} if owner == "timing" else {"group": [{"name": "a", "agents": [0], key: 1}]}
    with pytest.raises(StudyError, match=f"{key} = 1: must be a table, for example {key} = {{") as caught:
        load_study({**tomllib.loads(RIGHT), **table})
    example = str(caught.value).partition("for example ")[2]
    table = (
        {"timing": tomllib.loads(example)}
        if owner == "timing"
        else {"group": [{"name": "a", "agents": [0], **tomllib.loads(example)}]}
    )
    load_study({**tomllib.loads(RIGHT), **table})


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"exchange": {"mode": "first_k"}},
         "[exchange] k: 5, the default, must be at most 4, the number of agents that optimise; set k"),
        ({"exchange": {"mode": "first_k", "k": 9}}, "[exchange] k = 9: must be at most 4, the number of agents that optimise"),
    ],
)  # fmt: skip
def test_a_refused_default_is_said_to_be_one(table: dict[str, Any], line: str) -> None:
    with pytest.raises(StudyError, match="must be") as caught:
        load_study({**tomllib.loads(RIGHT), **table})
    assert str(caught.value) == f"study: {line}"


@pytest.mark.parametrize("k", [0.0, 1.0, 1.5, -0.5, "10%", True])
def test_messages_are_a_number_or_a_share(k: Any) -> None:
    with pytest.raises(StudyError, match="k = .*: must be a whole number of messages, at least 1, or a share of the agents"):
        load_study({**tomllib.loads(RIGHT), "exchange": {"mode": "buffered", "k": k}})


def test_what_is_no_readable_file_is_told_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("right.toml").write_text(RIGHT, encoding="utf-8")
    Path("latin.toml").write_bytes(b'[study]\nname = "caf\xe9"\n')
    for name, line in {
        "rihgt.toml": "rihgt.toml: no such file; that folder contains: latin.toml, right.toml",
        "nowhere/x.toml": "nowhere/x.toml: no such file; pass the path of a study file",
        ".": ".: is a directory; pass the study file in it",
        "right.toml/x": "right.toml/x: cannot be read (Not a directory); check the path and its permissions",
        "n" * 300: f"{'n' * 300}: cannot be read (File name too long); check the path and its permissions",
        "/dev/zero": "/dev/zero: is larger than 16 MiB; pass a study file",
        "latin.toml": "latin.toml: byte 19: not UTF-8; save the file as UTF-8 text",
    }.items():
        with pytest.raises(StudyError, match="; ") as caught:
            load_study(name)
        assert str(caught.value) == line


INITIAL: list[tuple[str, str]] = [
    ("agent,point,x1\n0,0,0.5\n", "has columns agent, point, x1; it must have agent, replicate, point, x1, x2"),
    ("agent,replicate,point,x1,x2\n0,0,0,0.5,1.5\n", "row 1 is at [0.5, 1.5]; points must be in the unit cube"),
    ("agent,replicate,point,x1,x2\n0,0,0,0.5,nan\n", "column x2 contains null; it must contain numbers"),
    ("agent,replicate,point,x1,x2\n0,0,0,a,0.5\n", "column x1 contains string; it must contain numbers"),
    ("agent,replicate,point,x1,x2\n0.5,0,0,0.5,0.5\n", "column agent contains double; it must contain whole numbers"),
    ("agent,replicate,point,x1,x2\n0,0,0,0.5,0.5\n",
     "has no points for agent 1, replicate 0; every target needs some in each replicate"),
    ("agent,replicate,point,x1,x2\n0,0,0,0.5,0.5\n0,0,1,0.5,0.5\n1,0,0,0.5,0.5\n",
     "has 1 points for agent 1, replicate 0, but 2 for agent 0, replicate 0; give all of them equally many"),
    ("", "cannot be read as csv (Empty CSV file)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "remedy"), INITIAL, ids=[remedy[:40] for _, remedy in INITIAL])
def test_a_wrong_file_of_initial_points_is_told_what_it_lacks(text: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(text, encoding="utf-8")
    path = tmp_path / "study.toml"
    path.write_text(added("[agents]\ntargets = [0, 1]\ninitial_file = 'points.csv'"), encoding="utf-8")
    with pytest.raises(StudyError, match="initial_file") as caught:
        load_study(path)
    assert str(caught.value) == f"{path}: [agents] initial_file = 'points.csv': {remedy}"


def test_initial_points_that_are_missing_or_differ_in_number_from_what_is_asked_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(added("[agents]\ntargets = [0]\ninitial_file = 'points.csv'"), encoding="utf-8")
    with pytest.raises(StudyError, match="no such file; the path is relative to the folder of the study file"):
        load_study(path)
    (tmp_path / "points.csv").write_text("agent,replicate,point,x1,x2\n0,0,0,0.5,0.5\n", encoding="utf-8")
    with pytest.raises(
        StudyError, match="initial = 3: does not match initial_file, which has 1 points for each target; remove initial"
    ):
        load_study(path, ["agents.initial=3"])
    assert load_study(path).agents.initial == 1


def test_all_that_is_wrong_in_the_tables_of_a_study_is_told_at_once() -> None:
    """Tables that are no lists, keys, numbers, names, nested settings and missing keys; one pass, each once."""
    wrong = """
[study]
name = "wrong"
[objective]
name = "quadratic"
agents = 0
[budget]
iterations = -2
[algorithm]
name = "fts"
every = -1
fetures = 3
own = {surrogate = "ridg"}
[timing]
evaluation = {model = "lognormal", mean = -1}
[[fault]]
kind = "crash"
[[fault]]
rate = 0.1
[exchange]
mode = "bariers"
[hosting]
kind = "pakced"
"""
    with pytest.raises(StudyError) as caught:
        load_study(tomllib.loads(wrong))
    places = [line.removeprefix("study: ").split(":")[0] for line in str(caught.value).splitlines()]
    assert places == [
        "[algorithm]",
        "[objective] agents = 0",
        "[budget] iterations = -2",
        "[[algorithm]] 1 fetures",
        "[[algorithm]] 1 own.surrogate",
        "[[algorithm]] 1 every",
        "[timing] evaluation.mean = -1",
        "[exchange] mode = 'bariers'",
        "[[fault]] 1",
        "[[fault]] 2 kind",
        "[hosting] kind = 'pakced'",
    ]


def test_the_settings_of_a_table_whose_name_is_swept_are_not_held_against_its_first_name() -> None:
    """`k` is a setting of the mode that is swept, so that only another table is wrong."""
    wrong = (
        changed(BUDGET, "iterations = 0")
        + """
[exchange]
mode = "barrier"
k = 2
[sweep]
exchange.mode = ["buffered"]
"""
    )
    with pytest.raises(StudyError) as caught:
        load_study(tomllib.loads(wrong))
    assert str(caught.value) == "study: [budget] iterations = 0: must be at least 1"


def test_without_their_room_evaluations_do_not_overlap_and_a_preemption_needs_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedbo.study.check.study_tables", lambda: {})
    with pytest.raises(StudyError) as caught:
        load_study(tomllib.loads(added('[evaluation]\nparallel = 2\n[[fault]]\nkind = "preemption"\nrate = 0.1')))
    words = str(caught.value)
    assert "[evaluation]: needs a part of fedbo that is not installed here; remove parallel, prefetch and resources" in words
    assert "[[fault]] 1 kind = 'preemption': affects the workers of a [cluster], but this study has none" in words
