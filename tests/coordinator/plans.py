"""Random fault plans in small worlds in which anything else may go wrong as well."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from small_runs import ALL_MODES, Setting, fts

from fedbo.actors.evaluation.policy import Policy
from fedbo.algorithms.base import Algorithm
from fedbo.algorithms.catalog import entry
from fedbo.coordinator.environment.availability import Always, Bernoulli, Daily, Markov
from fedbo.coordinator.environment.faults import (
    FAULTS,
    LIES,
    MESSAGE_FAULTS,
    Corruption,
    Crash,
    Delay,
    Duplication,
    Fault,
    Hang,
    Lie,
    Loss,
    NetworkPartition,
    Reordering,
    Restart,
    Slow,
)
from fedbo.coordinator.environment.timing import Constant, DecisionTimeModel, Exponential, Lognormal, Pareto, SpeedClasses
from fedbo.coordinator.selection import Selection
from fedbo.coordinator.staleness import Staleness
from fedbo.settings.durations import DurationLaw

AGENTS, DIM = 4, 2
UNTIL = 200.0  # who begins again whenever it leaves may never end

times = st.floats(0.0, 12.0)
spans = st.floats(0.1, 4.0)
laws = st.builds(DurationLaw, model=st.sampled_from(["exponential", "lognormal", "gamma", "pareto"]), mean=spans)
lasting = st.one_of(spans, spans, laws)
chances = st.sampled_from([0.1, 0.4, 0.9])
some = st.lists(st.integers(0, AGENTS - 1), min_size=1, max_size=AGENTS, unique=True).map(lambda n: tuple(sorted(n)))


OF_AGENTS = sorted(FAULTS.keys() - {"preemption"})  # which strikes the workers of a cluster


@st.composite
def when(draw: Any) -> dict[str, Any]:
    kind = draw(st.sampled_from(["at", "event", "rate"]))
    several = st.lists(times, min_size=1, max_size=3, unique=True).map(lambda some: tuple(sorted(some)))
    at = st.one_of(times, times, several)
    return {kind: draw({"at": at, "event": st.integers(1, 120), "rate": st.floats(0.02, 0.3)}[kind])}


@st.composite
def faults(draw: Any, kind: str | None = None) -> Fault:
    kind = kind or draw(st.sampled_from(OF_AGENTS))
    if FAULTS[kind] in MESSAGE_FAULTS:
        start = draw(times)
        span: dict[str, Any] = {"agents": draw(some), "probability": draw(chances), "start": start}
        if draw(st.booleans()):
            span["end"] = start + draw(spans)
        if kind == "corruption":
            return Corruption(**span, how=draw(st.sampled_from(["bits", "nan", "shape", "replay"])))
        if kind == "lie":
            return Lie(**span, how=draw(st.sampled_from(LIES)))
        span["direction"] = draw(st.sampled_from(["both", "up", "down"]))
        by = {"by": draw(spans)}
        return {
            "loss": lambda: Loss(**span),
            "duplication": lambda: Duplication(**span, **by),
            "reordering": lambda: Reordering(**span, **by),
            "delay": lambda: Delay(**span, **by),
        }[kind]()
    moment = draw(when())
    if kind == "coordinator":
        return Restart(**moment, duration=draw(lasting))
    struck = {"agents": draw(some), **moment}
    if kind != "partition" and "rate" in moment:
        struck["together"] = draw(st.booleans())
    return {
        "crash": lambda: Crash(
            **struck, state=draw(st.sampled_from(["kept", "lost"])), restart=draw(st.one_of(lasting, lasting, st.none()))
        ),
        "hang": lambda: Hang(**struck, duration=draw(lasting)),
        "slow": lambda: Slow(**struck, duration=draw(lasting), factor=draw(st.floats(1.0, 5.0))),
        "partition": lambda: NetworkPartition(**struck, duration=draw(lasting)),
    }[kind]()


def algorithms() -> dict[str, Algorithm]:
    """Methods that send after every step, now and then, or never; that ask for one point or for a varying number."""
    made = {"every step": fts(), "every other step": fts(every=2), "never": entry("random").make()}

    class Varying(type(made["every step"])):  # type: ignore[misc]
        """Ask for as many points as the step's number modulo 3, at least one."""

        queries = None

        def ask(self, state: Any, inbox: Any, streams: Any) -> Any:
            decision, state = super().ask(state, inbox, streams)
            extra = streams.rng("more points").random((streams.step % 3, DIM))
            return decision._replace(x=np.concatenate([decision.x, extra])), state

    settings = {field.name: getattr(made["every step"], field.name) for field in fields(made["every step"])}
    return {**made, "varying": Varying(**settings)}


ALGORITHMS = algorithms()

selections = st.one_of(
    st.just(Selection()),
    st.builds(Selection, who=st.sampled_from(["fraction", "poisson", "speed"]), share=st.sampled_from([0.3, 0.7])),
)
stalenesses = st.one_of(
    st.just(Staleness()),
    st.builds(
        Staleness,
        weight=st.sampled_from(["polynomial", "exponential", "hinge"]),
        bound=st.one_of(st.none(), st.integers(0, 3)),
    ),
)


@st.composite
def settings(draw: Any, plan: Any = None) -> Setting:
    """Draw a small world in which anything may go wrong."""
    exchange = draw(st.sampled_from(ALL_MODES))
    selection = draw(selections)
    if not exchange.is_synchronous and selection.who not in ("all", "poisson"):
        selection = Selection()
    exchange = replace(exchange, selection=selection, staleness=draw(stalenesses))
    return Setting(
        ALGORITHMS[draw(st.sampled_from(sorted(ALGORITHMS)))],
        agents=AGENTS,
        targets=draw(st.sampled_from([None, (0, 2, 3)])),
        iterations=draw(st.integers(2, 7)),
        initial=draw(st.integers(0, 2)),
        seed=draw(st.integers(0, 2**20)),
        exchange=exchange,
        evaluation=draw(st.sampled_from([Constant(1.0), Exponential(1.0), Lognormal(1.0, 0.8), Pareto(1.0, 1.2)])),
        latency=draw(st.sampled_from([Constant(0.0), Constant(0.1), Exponential(0.2)])),
        availability=draw(st.sampled_from([Always(), Bernoulli(0.2, 1.5), Markov(3.0, 1.0), Daily(6.0, 4.0, 1.0, 6)])),
        models={
            "leaving": draw(st.sampled_from(["resumed", "lost"])),
            "decision": draw(st.sampled_from([DecisionTimeModel(), DecisionTimeModel(0.01, 2.0)])),
            "speed": draw(st.sampled_from([SpeedClasses((1.0,)), SpeedClasses((1.0, 3.0))])),
            "bandwidth": draw(st.sampled_from([None, 1000.0])),
        },
        world={
            "link": draw(st.sampled_from([None, 2000.0])),
            "retry": draw(st.sampled_from([0.3, 1.0])),
            "attempts": draw(st.sampled_from([1, 3, 10])),
            "plan": tuple(draw(st.lists(faults(), min_size=1, max_size=5))) if plan is None else draw(plan),
        },
        policy=draw(st.sampled_from([Policy(), Policy(2, "avoid", 2.5), Policy(0, "drop", 1.5)])),
        checkpoint=draw(st.integers(1, 3)),
        until=UNTIL,
    )
