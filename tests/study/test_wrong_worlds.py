"""What a study with a wrong world is told: times, network, absence, groups, faults, exchange, in one line each."""

from __future__ import annotations

from pathlib import Path

import pytest
from right_study import BUDGET, NAME, added, changed

from fedbo.study.document import StudyError
from fedbo.study.study import load_study

WALL = "[timing]\nclock = 'wall'\n"
PACKED = "\n[hosting]\nkind = 'packed'\n"
NO_EFFECT = 'has no effect in real time; remove it, or set clock = "virtual"'
WHO = 'must be "all", the name of a group, or a list of agents, for example [0, 1]'
ENDS = changed(BUDGET, "iterations = 5\ntime = 4.0")


def group(text: str, name: str = "slow") -> str:
    return f"[[group]]\nname = '{name}'\n{text}\n"


def fault(kind: str, text: str = "") -> str:
    return f"[[fault]]\nkind = '{kind}'\n{text}\n"


WRONG: list[tuple[str, str]] = [
    # clusters and overlapping evaluations
    ("[evaluation]\nparallel = 0", "[evaluation] parallel = 0: must be at least 1"),
    ("[evaluation]\nwait = 'some'", "[evaluation] wait = 'some': no wait 'some'; available: all, any"),
    ("[evaluation]\nprefetch = -1", "[evaluation] prefetch = -1: must be at least 0"),
    ("[evaluation]\nresources = [{CPU = 2.0}]",
     "[evaluation] resources: require workers; add a [cluster], set [timing] clock = \"wall\", or remove them"),
    ("[cluster]\nworkers = 0", "[cluster] workers = 0: must be at least 1"),
    ("[cluster]\nworker = 4", "[cluster] worker = 4: must be a list"),
    ("[cluster]\nrule = 'fair_share'",
     "[cluster]: has no workers; set workers = 8, or add [[cluster.worker]] with a name and a count"),
    ("[cluster]\nworkers = 2\nrule = 'random'", "[cluster] rule = 'random': must be 'first_come', 'fair_share' or 'priority'"),
    ("[cluster]\nworkrs = 2", "[cluster] workrs = 2: no such key; did you mean 'workers'?"),
    ("[cluster]\nworkers = 2\nstartup = -1.0", "[cluster] startup = -1.0: must be at least 0"),
    ("[cluster]\nworkers = 2\npriorities = [1.0]",
     '[cluster] priorities = [1.0]: has no effect with this rule; remove it, or set rule = "priority"'),
    ("[cluster]\nworkers = 2\n[[cluster.worker]]\nname = 'big'",
     "[cluster] workers = 2: cannot be combined with [[cluster.worker]], which sets counts; set one of them"),
    ("[[cluster.worker]]\nname = 'big'\ncount = 0", "[[cluster.worker]] 1 count = 0: must be at least 1"),
    ("[[cluster.worker]]\nname = 'big'\nspeed = 0.0", "[[cluster.worker]] 1 speed = 0.0: must be above 0"),
    ("[[cluster.worker]]\nname = 'all'", "[[cluster.worker]] 1 name = 'all': is reserved for all workers; choose another name"),
    ("[[cluster.worker]]\nname = 'big'\njoins = 2.0\nleaves = 1.0",
     "[[cluster.worker]] 1 leaves = 1.0: must be above joins = 2"),
    ("[[cluster.worker]]\nname = 'big'\n[[cluster.worker]]\nname = 'big'",
     "[[cluster.worker]] 2 name = 'big': is already the name of another class of workers; choose another name"),
    ("[[cluster.worker]]\nname = 'big'\nleaves = 3.0\n[[cluster.worker]]\nname = 'spot'\nleaves = 4.0",
     "[[cluster.worker]] 2 leaves = 4.0: all workers have left after 4; remove it from one class, or "
     "set [budget] time to 4 or less"),
    ("[cluster]\nworkers = 2\n[evaluation]\nresources = [{GPU = 1.0}]",
     "[evaluation] resources: need 1 CPU and 1 GPU, but no class of workers has that much; lower it, "
     "or raise [[cluster.worker]] cpus, gpus, memory"),
    ("[cluster]\nworkers = 2\n[evaluation]\nresources = [{TPU = 1.0}]",
     "[evaluation] resources: no resource of a simulated worker 'TPU'; did you mean 'GPU'? available: CPU, GPU, memory"),
    (fault("preemption",
     "rate = 0.1"), "[[fault]] 1 kind = 'preemption': affects the workers of a [cluster], but this study has none; "
     "add a [cluster], or remove the fault"),
    ("[cluster]\nworkers = 2\n" + fault("preemption", "rate = 0.1\nworkers = 'spot'"),
     "[[fault]] 1 workers = 'spot': no class of workers 'spot'; available: all"),
    ("[cluster]\nworkers = 2\n" + fault("preemption"), "[[fault]] 1: set exactly one of at and rate"),
    ("[cluster]\nworkers = 2\n" + fault("preemption",
     "at = 1.0\nduration = 0.0"), "[[fault]] 1 duration = 0.0: must be above 0; remove it for a permanent loss"),
    ("[cluster]\nworkers = 2\ncheckpoint = {cost = 1.0}", "[cluster] checkpoint.every: is missing; add every = …"),
    ("[cluster]\nworkers = 2\ncopies = {after = 0.0}", "[cluster] copies.after = 0.0: must be above 0"),
    ("[cluster]\nworkers = 2\ncopies = {quantile = 1.0}", "[cluster] copies.quantile = 1.0: must be below 1.0"),
    ("[cluster]\nworkers = 2\ncheckpoint = {every = 0.0}", "[cluster] checkpoint.every = 0.0: must be above 0"),
    ("[cluster]\nworkers = 2\n" + fault("preemption", "at = 1.0\nnotice = -1.0"),
     "[[fault]] 1 notice = -1.0: must be at least 0"),
    ("[network]\nbandwidth = {upward = 1.0}", "[network] bandwidth: must be a number above 0, or one for each way, "
     "for example { up = 1e5, down = 1e6 }"),
    ("[network]\nbandwidth = 0", "[network] bandwidth = 0: must be a number above 0, or one for each way, "
     "for example { up = 1e5, down = 1e6 }"),
    # times
    ("[timing]\nspeed = {factors = []}", "[timing] speed.factors = []: must be one or more numbers above 0"),
    ("[timing]\nspeed = {factors = [1.0, -2.0]}",
     "[timing] speed.factors = [1.0, -2.0]: must be one or more numbers above 0"),
    ("[timing]\nspeed = {factors = [1.0, 2.0], shares = [1.0]}",
     "[timing] speed.shares = [1.0]: must have one number for each of the 2 factors, or none"),
    (
        "[[group]]\nname = 'slow'\nshare = 0.5\nspeed = 2.0",
        "[[group]] 1 speed = 2.0: must be a table, for example speed = {factors = [2.0]}",
    ),
    ("[timing]\nspeed = 2.0", "[timing] speed = 2.0: must be a table, for example speed = {factors = [1.0, 2.0]}"),
    ("[timing]\ndecision = {coefficient = -0.1}", "[timing] decision.coefficient = -0.1: must be at least 0 and finite"),
    ("[timing]\ndecision = {coeficient = 0.1}",
     "[timing] decision.coeficient = 0.1: no such key; did you mean 'coefficient'?"),
    ("[timing]\nlatency = {model = 'cost'}",
     "[timing] latency.model = 'cost': only evaluations have costs; use another model for messages"),
    # network
    ("[network]\nlink = 'fast'", "[network] link = 'fast': must be a number"),
    ("[network]\nretry = 0.0", "[network] retry = 0.0: must be above 0"),
    ("[network]\nattempts = 0", "[network] attempts = 0: must be at least 1"),
    ("[network]\natempts = 3", "[network] atempts = 3: no such key; did you mean 'attempts'?"),
    # absence
    ("[availability]\nleaving = 'gone'", "[availability] leaving = 'gone': must be 'resumed' or 'lost'"),
    ("[availability]\nmodel = 'markov'\npresent = 0", "[availability] present = 0: must be above 0 and finite"),
    ("[availability]\nmodel = 'trace'", "[availability] file: is missing; add file = …"),
    ("[availability]\nmodel = 'trace'\nfile = 'bad.csv'",
     "[availability] file = 'bad.csv': has agent 0, start 2.0, end 1.0 in row 1; start must be below end"),
    ("[availability]\nmodel = 'daily'\npresent = 4\nleaving = 'lost'\n[timing]\nevaluation = {model = 'constant', mean = 2}",
     "[availability] present = 4: is shorter than a step of 6, which every absence would interrupt; "
     'lengthen it, set leaving = "resumed", or limit the study by [budget] time'),
    # exchange
    ("[exchange]\nmode = 'deadline'\nlength = 0", "[exchange] length = 0: must be above 0"),
    ("[exchange]\nmode = 'deadline'\nlate = 'later'", "[exchange] late = 'later': no late 'later'; available: carry, drop"),
    ("[exchange]\nmode = 'deadline'\nk = 3",
     "[exchange] k = 3: no such key; available: late, length, lengths, minimum, mode, selection, staleness"),
    ("[exchange]\nmode = 'first_k'\nk = 5",
     "[exchange] k = 5: must be at most 4, the number of agents that optimise"),
    ("[exchange]\nmode = 'buffered'",
     "[exchange] k: 5, the default, must be at most 4, the number of agents that optimise; set k"),
    ("[exchange]\nstaleness = {wieght = 'hinge'}",
     "[exchange] staleness.wieght = 'hinge': no such key; did you mean 'weight'?"),
    ("[exchange]\nstaleness = {weight = 'hing'}",
     "[exchange] staleness.weight = 'hing': no weight 'hing'; did you mean 'hinge'? "
     "available: constant, exponential, hinge, polynomial"),
    ("[exchange]\nstaleness = {bound = -1}", "[exchange] staleness.bound = -1: must be at least 0"),
    ("[exchange]\nstaleness = 'hinge'", "[exchange] staleness = 'hinge': must be a table"),
    ("[exchange]\nselection = {who = 'some'}",
     "[exchange] selection.who = 'some': no selection 'some'; "
     "available: all, fraction, poisson, speed, tiers, usefulness"),
    ("[exchange]\nselection = {who = 'poisson', share = 0.0}", "[exchange] selection.share = 0.0: must be in (0, 1]"),
    ("[exchange]\nselection = {who = 'fraction', share = 0.5}",
     "[exchange] selection.who = 'fraction': under 'immediate' there are no rounds to take a share "
     'of; use "poisson", or set concurrency'),
    ("[exchange]\nmode = 'barrier'\nselection = {who = 'poisson', share = 0.5, others = 'idle'}",
     "[exchange] selection.others = 'idle': must be \"work\" for this selection; "
     "set who = \"fraction\", \"speed\", \"usefulness\" or \"tiers\" for idle agents"),
    ("[exchange]\nmode = 'buffered'\nk = 2\nselection = {who = 'speed', share = 0.5}",
     "[exchange] selection.who = 'speed': under 'buffered' there are no rounds to take a share of; "
     'use "poisson", or set concurrency'),
    ("[detection]\nheartbeat = 2.0\ntimeout = 1.0", "[detection] timeout = 1.0: must be at least the heartbeat of 2"),
    ("[detection]\nheartbeat = -1.0", "[detection] heartbeat = -1.0: must be above 0"),
    ("[detection]\nheart = 1.0", "[detection] heart = 1.0: no such key; did you mean 'heartbeat'?"),
    ("[exchange]\nmode = 'buffered'\nk = 2\nselection = {concurrency = 99}",
     "[exchange] selection.concurrency = 99: must be at most 4, the number of agents"),
    ("[exchange]\nmode = 'buffered'\nk = 2\nselection = {concurrency = 2, who = 'speed', others = 'idle'}",
     "[exchange] selection.concurrency = 2: makes agents idle that have no turn; remove others = \"idle\""),
    ("[exchange]\nmode = 'barrier'\nselection = {concurrency = 2}",
     "[exchange] selection.concurrency = 2: is for modes without rounds, and 'barrier' has rounds; use who and share"),
    ("[exchange]\nmode = 'buffered'\nk = 2\nselection = {concurrency = 2, who = 'poisson', share = 0.5}",
     "[exchange] selection.concurrency = 2: draws one agent at a time, and \"poisson\" flips a coin for each; "
     "set who = \"all\""),
    ("[exchange]\nmode = 'barrier'\nselection = {who = 'usefulness', share = 0.5}",
     "[exchange] selection.who = 'usefulness': 'random' does not tell how useful its messages are; "
     "use share_best with values = true, or pooled"),
    # evaluations, checkpoints, snapshots
    ("[evaluation]\nretries = 1.5", "[evaluation] retries = 1.5: must be a whole number"),
    ("[evaluation]\nfailure = 'ignore'", "[evaluation] failure = 'ignore': no failure 'ignore'; available: avoid, drop, stop"),
    ("[evaluation]\ntime_limit = 0", "[evaluation] time_limit = 0: must be above 0"),
    ("[evaluation]\nmemory_limit = 100",
     '[evaluation] memory_limit = 100: applies to real time only; remove it, or set clock = "wall"'),
    ("[evaluation]\nretry = 1", "[evaluation] retry = 1: no such key; did you mean 'retries'?"),
    ("[agents]\ncheckpoint = 0", "[agents] checkpoint = 0: must be at least 1"),
    ("[recovery]\nseconds = 0", "[recovery] seconds = 0: must be above 0"),
    ("[recovery]\nevent = 3", "[recovery] event = 3: no such key; did you mean 'events'?"),
    # groups
    ("[group]\nname = 'slow'", "[group]: is an array of tables; write [[group]]"),
    ("[[group]]\nagents = [1]", '[[group]] 1 name: is missing; add name = "slow"'),
    (group(""), "[[group]] 1: has no agents; set agents = [0, 1], or a share of all agents, for example share = 0.2"),
    (group("agents = [1]\nshare = 0.5"), "[[group]] 1 share = 0.5: cannot be combined with a list of agents; set one of them"),
    (group("agents = []"), "[[group]] 1 agents = []: must contain at least one agent"),
    (group("agents = 'all'"), "[[group]] 1 agents = 'all': must be a list of agents, for example [0, 1]"),
    (group("agents = [4]"), "[[group]] 1 agents = [4]: agent 4 does not exist; this objective has agents 0 to 3"),
    (group("agents = [1, 1]"), "[[group]] 1 agents = [1, 1]: agent 1 is listed twice; list each agent once"),
    (group("agents = [1]", "all"), "[[group]] 1 name = 'all': is reserved for all agents; choose another name"),
    (group("agents = [1]") + group("agents = [2]"),
     "[[group]] 2 name = 'slow': is already the name of [[group]] 1; choose another name"),
    (group("agents = [1, 2]") + group("agents = [2]", "far"),
     "[[group]] 2 agents = [2]: agent 2 is already in group 'slow'; put it into one group only"),
    (group("share = 0.1"), "[[group]] 1 share = 0.1: rounds to no agent of 4; raise it above 0.125"),
    (group("by = 'x1'"), "[[group]] 1 by = 'x1': orders agents to take a share of them; set a share, for example share = 0.2"),
    (group("agents = [1]\nby = 'x1'"),
     "[[group]] 1 by = 'x1': orders agents to take a share of them, but agents are listed; remove it"),
    (group("share = 0.5\nby = 'hardness'"),
     "[[group]] 1 by = 'hardness': no measure 'hardness'; "
     "available: data, difficulty, distance, history, number, x1, x2"),
    (group("share = 0.5\nby = 'data'"),
     "[[group]] 1 by = 'data': 'quadratic' has no data sizes; use difficulty or distance"),
    (group("share = 0.5\nby = 'history'"),
     "[[group]] 1 by = 'history': orders by observations before the study, but there are none; add [agents.history]"),
    (group("share = 0.5\nby = 'x1'\niterations = 2"),
     "[[group]] 1 iterations = 2: must be the same in every replicate, but the agents of a group "
     "`by` a measure differ; remove it"),
    (group("share = 1.5"), "[[group]] 1 share = 1.5: must be at most 1"),
    (group("agents = [0, 1]") + group("share = 0.75", "far"),
     "[[group]] 2 share = 0.75: is 3 of 4 agents, but only 2 are in no other group; lower it"),
    (group("agents = [1]\nspead = 3"), "[[group]] 1 spead = 3: no such key; did you mean 'speed'?"),
    (group("agents = [1]\nevaluation = {model = 'constant', maen = 3}"),
     "[[group]] 1 evaluation.maen = 3: no such key; did you mean 'mean'?"),
    (group("agents = [1]\navailability = {model = 'markov', leaving = 'lost'}"),
     "[[group]] 1 availability.leaving = 'lost': no such key; available: absent, model, present"),
    (group("agents = [1]\nleaving = 'away'"), "[[group]] 1 leaving = 'away': must be 'resumed' or 'lost'"),
    # faults
    ("[fault]\nkind = 'crash'\nrate = 0.1", "[fault]: is an array of tables; write [[fault]]"),
    ("[[fault]]\nrate = 0.1", '[[fault]] 1 kind: is missing; add kind = "crash"'),
    (fault("crsh"), "[[fault]] 1 kind = 'crsh': no fault 'crsh'; did you mean 'crash'? available: coordinator, corruption, "
     "crash, delay, duplication, hang, lie, loss, partition, preemption, reordering, slow"),
    (fault("crash"), "[[fault]] 1: set exactly one of at, event and rate"),
    (fault("crash", "at = 1.0\nrate = 0.1"),
     "[[fault]] 1 at = 1.0: cannot be combined with rate; set exactly one of at, event and rate"),
    (fault("crash", "at = -1.0"), "[[fault]] 1 at = -1.0: must be at least 0; 0 is the start of the study"),
    (fault("crash", "event = 0"), "[[fault]] 1 event = 0: must be at least 1; 1 is the first event"),
    (fault("crash", "rate = -0.1"), "[[fault]] 1 rate = -0.1: must be at least 0"),
    (fault("crash", "rate = 0.1\nstate = 'gone'"), "[[fault]] 1 state = 'gone': no state 'gone'; available: kept, lost"),
    (fault("crash", "rate = 0.1\nrestart = 0"), "[[fault]] 1 restart = 0: must be above 0; remove it for a permanent loss"),
    (fault("crash", "at = [2.0, 1.0]"), "[[fault]] 1 at = [2.0, 1.0]: must be one or more ascending times"),
    (fault("crash", "at = [-1.0, 1.0]"), "[[fault]] 1 at = [-1.0, 1.0]: must be at least 0; 0 is the start of the study"),
    (fault("crash", "rate = 0.1\nrestart = 'long'"), "[[fault]] 1 restart = 'long': must be a number or a table"),
    (fault("crash", "rate = 0.1\nrestart = {model = 'expo'}"),
     "[[fault]] 1 restart.model = 'expo': no model 'expo'; "
     "available: exponential, gamma, lognormal, pareto"),
    (fault("hang", "rate = 0.1\nduration = {model = 'gamma', sigma = 1.0}"),
     "[[fault]] 1 duration.sigma = 1.0: is no setting of gamma; remove it"),
    (fault("hang", "rate = 0.1\nduration = {model = 'gamma', mean = -1.0}"),
     "[[fault]] 1 duration.mean = -1.0: must be above 0 and finite"),
    (fault("crash", "at = 1.0\nrestart = 1.0\ntogether = true"),
     "[[fault]] 1 together = true: is true of all that is struck at set times for a set time; set a rate, or remove it"),
    (fault("crash", "rate = 0.1\nagents = 'slow'"), "[[fault]] 1 agents = 'slow': no group 'slow'; available: all"),
    (group("agents = [1]") + fault("crash", "rate = 0.1\nagents = 'slwo'"),
     "[[fault]] 1 agents = 'slwo': no group 'slwo'; did you mean 'slow'? available: all, slow"),
    (fault("hang", "rate = 0.1\nagents = [4]"),
     "[[fault]] 1 agents = [4]: agent 4 does not exist; this objective has agents 0 to 3"),
    (fault("hang", "rate = 0.1\nagents = []"),
     '[[fault]] 1 agents = []: must contain at least one agent; use "all" for every agent'),
    (fault("hang", "rate = 0.1\nagents = [0.5]"), f"[[fault]] 1 agents = [0.5]: {WHO}"),
    (fault("hang", "rate = 0.1\nagents = 3"), f"[[fault]] 1 agents = 3: {WHO}"),
    (fault("hang", "rate = 0.1\nduration = 0"), "[[fault]] 1 duration = 0: must be above 0"),
    (fault("slow", "rate = 0.1\nfactor = 0.5"), "[[fault]] 1 factor = 0.5: must be at least 1"),
    (fault("coordinator", "rate = 0.1\nagents = [1]"),
     "[[fault]] 1 agents = [1]: no such key; available: at, duration, event, kind, label, rate"),
    (fault("loss", "probability = 1.5"), "[[fault]] 1 probability = 1.5: must be in [0, 1]"),
    (fault("loss", "start = -1"), "[[fault]] 1 start = -1: must be at least 0; 0 is the start of the study"),
    (fault("loss", "start = 3\nend = 2"), "[[fault]] 1 end = 2: must be above start = 3.0"),
    (fault("loss", "direction = 'side'"), "[[fault]] 1 direction = 'side': no direction 'side'; available: both, down, up"),
    (fault("corruption", "how = 'bit'"),
     "[[fault]] 1 how = 'bit': no how 'bit'; did you mean 'bits'? available: bits, nan, replay, shape"),
    (fault("lie", "how = 'flatter'"), "[[fault]] 1 how = 'flatter': no how 'flatter'; did you mean 'flattery'? available: "
     "collusion, copy, drift, flattery, inverted"),
    (fault("lie", "how = 'copy'\nstrength = 2"),
     '[[fault]] 1 strength = 2: cannot be combined with how = "copy", which sends a copy of another message'),
    (fault("loss", "label = 'x'") + fault("delay", "label = 'x'"),
     "[[fault]] 2 label = 'x': label 'x' belongs to [[fault]] 1; choose another label"),
    # real time
    (f"{WALL}speed = {{factors = [1.0, 2.0]}}{PACKED}", f"[timing] speed: {NO_EFFECT}"),
    (f"{WALL}decision = {{coefficient = 1.0}}{PACKED}", f"[timing] decision: {NO_EFFECT}"),
    (f"{WALL}evaluation = {{model = 'gamma'}}{PACKED}", f"[timing] evaluation.model = 'gamma': {NO_EFFECT}"),
    (WALL + PACKED + group("agents = [1]\nevaluation = {model = 'constant'}"), f"[[group]] 1 evaluation: {NO_EFFECT}"),
    (WALL + PACKED + fault("crash", "at = 1"),
     "[[fault]] 1 kind = 'crash': affects a real process and the other agents in it; set [hosting] "
     'kind = "dedicated"'),
    # sweeps
    ("[sweep]\nfault.loss.probability = [0.1]",
     '[sweep] "fault.loss.probability" = [0.1]: must start with the label of a fault and a dot; '
     "labels: none"),
    (fault("loss") + "[sweep]\nfault.loss.probability = [0.0, 2.0]",
     '[sweep] "fault.loss.probability" = [0.0, 2.0]: 2.0 must be in [0, 1]'),
    (fault("crash", "rate = 0.0") + "[sweep]\nfault.crash.agents = ['slow']",
     "[sweep] \"fault.crash.agents\" = [\"slow\"]: no group 'slow'; available: all"),
    (group("agents = [1]") + "[sweep]\ngroup.far.share = [0.5]",
     '[sweep] "group.far.share" = [0.5]: must start with the name of a group and a dot; names: slow'),
    ("[sweep]\nrecovery.events = [1]",
     '[sweep] "recovery.events" = [1]: does not change results, so it cannot be swept; remove it'),
    ("[sweep]\nexchange.staleness.wieght = ['hinge']",
     "[sweep] \"exchange.staleness.wieght\" = [\"hinge\"]: no such key; did you mean 'weight'?"),
]  # fmt: skip

WHOLE: list[tuple[str, str]] = [
    (ENDS + fault("crash", "at = 4.0"), "[[fault]] 1 at = 4.0: must be before the study's end; [budget] time = 4"),
    (ENDS + fault("loss", "start = 5"), "[[fault]] 1 start = 5: must be before the study's end; [budget] time = 4"),
    (changed(NAME, 'name = "branin"') + "[timing]\nevaluation = {model = 'cost'}\n",
     "[timing] evaluation.model = 'cost': 'branin' reports no costs; use another model, or an objective that reports them: "
     "fcnet, fedavg_training, gpu_kernels, lcbench, learning_curves, mlp_tasks, nas_tasks, python_function with a cost, "
     "quadratic, xgboost_tasks"),
    (changed(NAME, 'name = "branin"') + group("agents = [1]\nevaluation = {model = 'cost'}"),
     "[[group]] 1 evaluation.model = 'cost': 'branin' reports no costs; use another model, or an objective that reports them: "
     "fcnet, fedavg_training, gpu_kernels, lcbench, learning_curves, mlp_tasks, nas_tasks, python_function with a cost, "
     "quadratic, xgboost_tasks"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [(added(text), line) for text, line in WRONG] + WHOLE,
    ids=[line[:70] for _, line in WRONG + WHOLE],
)
def test_a_wrong_world_is_told_in_one_line_what_is_wrong_and_what_would_do(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text(text, encoding="utf-8")
    Path("bad.csv").write_text("agent,start,end\n0,2,1\n", encoding="utf-8")
    with pytest.raises(StudyError, match=r"^study\.toml: ") as caught:
        load_study("study.toml")
    assert str(caught.value) == f"study.toml: {line}"


@pytest.mark.parametrize("table", ["[availability]\n", "[[group]]\nname = 'slow'\nagents = [1]\n[group.availability]\n"])
def test_a_trace_that_is_missing_is_looked_for_beside_the_study(table: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(added(f"{table}model = 'trace'\nfile = 'none.csv'"), encoding="utf-8")
    with pytest.raises(StudyError, match="file = 'none.csv': does not exist: ") as caught:
        load_study(path)
    assert f"does not exist: {tmp_path / 'none.csv'}; set the path" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("fault.crash.rate=2", "--set fault.crash.rate: must start with the label of a fault and a dot; labels: loss, loss 2"),
        ("fault.loss 2.probability=2", "--set: [[fault]] 2 probability = 2: must be in [0, 1]"),
        ("group.slow.share=2", "--set group.slow.share: must start with the name of a group and a dot; names: none"),
        ("network.link=-1", "--set: [network] link = -1: must be above 0"),
        ("exchange.staleness={weight = 1}", "--set: [exchange] staleness.weight = 1: must be a string in quotes"),
    ],
)
def test_a_wrong_override_of_a_world_is_told_apart_from_a_wrong_file(override: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(added(fault("loss") * 2), encoding="utf-8")
    with pytest.raises(StudyError, match="^--set") as caught:
        load_study(path, [override])
    assert str(caught.value) == line
