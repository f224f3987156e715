"""The protocol of a federated optimisation method: frozen settings, an agent half, a coordinator half, and explicit states.

An algorithm is a frozen dataclass of settings. Each function takes a state and returns the next one. Ray ships the state, a
checkpoint stores it, and a replay compares it. States are named tuples or frozen dataclasses of arrays, numbers and strings.
Points lie in the unit cube `[0, 1]^d`, and larger values are better.

The coordinator half owns its state: `receive`, `broadcast` and `released` may change its arrays in place, since there is no
other copy. The agent half is pure: the state before a step is kept, and restored when the step is repeated after a crash.
Several receivers read a message, so its arrays are read-only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.streams import Numbers, StreamBlock, Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check
from fedbo.surrogates.projected import Lattice

Array = npt.NDArray[np.float64]
Payload = Mapping[str, npt.NDArray[Any]]


# A damaged message may hold any number. With one like this to the fourth power nothing overflows in what is computed from it.
LARGEST = 1e60
LONGEST = 2**20  # rows of what varies in length, where a method does not bound it closer


@dataclass(frozen=True, slots=True)
class Field:
    """One named array of a message.

    shape: the shape; None for a length that varies from message to message.
    dtype: the dtype.
    finite: refuse NaN and infinity.
    positive: require a symmetric, positive semi-definite square matrix up to rounding, for example a covariance.
    observed: the numbers are observed values or follow from them; an adversary replaces them.
    low, high: the range of an adversary's numbers, one for all or one for each of the last axis; the coordinator does not check
      it.
    longest: bound of a varying length; a longer message is refused before it is read.

    All varying lengths in one message are the same number, so the size of a message determines them. The coordinator refuses a
    damaged `positive` matrix, since its receiver could not factorise it.
    """

    shape: tuple[int | None, ...]
    dtype: str = "float64"
    finite: bool = True
    positive: bool = False
    observed: bool = True
    low: float | tuple[float, ...] = -math.inf
    high: float | tuple[float, ...] = math.inf
    longest: int = LONGEST


Declaration = Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem as an algorithm knows it before the first evaluation.

    dim: d.
    n_agents: N.
    targets: the agents that optimise; the others only send.
    initial: number of points that each target evaluates before its first decision.
    iterations: T, the decisions after them; equals `pulls` where the budget counts evaluations.
    agent: number of this agent; -1 at the coordinator.
    history_x `(t_n, d)`, history_y `(t_n,)`: observations of this agent in an earlier task, fewer rows where evaluations
    failed; None without such a task, and at the coordinator.
    history: t_n, the observations of each agent before the study: of an earlier task, or of this one with a warm start.
    pulls: T, the evaluations of an agent in all, with its `initial` points, where the budget counts them; else 0.
    rounds: whether agents wait for rounds to close, and are then answered together. Without rounds only agents whose decision
      has no points wait.
    lattice: which points can be evaluated, if not all of the cube; others are rounded to them.
    objectives, constraints: m, the number of objectives, and c, the number of bounds on metrics; see `Multiple`.
    references: from which hypervolume is measured, as values to be maximised, one for each objective; empty without.
    weights: the importance of each objective to this agent, or at the coordinator to the study; empty with one objective.
    history_values `(t_n, m)`, history_margins `(t_n, c)`: the outcomes of history_x as in `Multiple.tell_outcomes`, in a study
      with more than one objective or with a constraint; else None.

    Where agents differ, `initial`, `iterations`, `history` and `pulls` are the largest of all agents; an agent may end sooner.
    """

    dim: int
    n_agents: int
    targets: Sequence[int]
    initial: int
    iterations: int
    agent: int = -1
    history_x: Array | None = None
    history_y: Array | None = None
    history: int = 0
    pulls: int = 0
    rounds: bool = True
    lattice: Lattice | None = None
    objectives: int = 1
    constraints: int = 0
    references: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    history_values: Array | None = None
    history_margins: Array | None = None


def horizon(problem: Problem) -> int:
    """Return T, the evaluations of each agent; SettingError where the budget counts decisions, of any number of evaluations."""
    if not problem.pulls:
        raise SettingError("name", "requires a budget of evaluations; set [budget] pulls instead of iterations")
    return problem.pulls


# Where a point came from: given to begin with; chosen by the agent's own surrogate; by what others have sent; uniform in the
# place of that, as a control; at random; agreed on in the end; the next of a tree; one of a batch, or of what is left over
# when the batches are done; the best one known, while waiting for an answer; or there is no point.
Origin = Literal["initial", "own", "federated", "uniform", "random", "agreed", "tree", "batch", "rest", "waiting", "none"]
ORIGINS_IN_ORDER: tuple[str, ...] = get_args(Origin)
ORIGINS = frozenset(ORIGINS_IN_ORDER)


class Decision(NamedTuple):
    """The points to evaluate next.

    x `(q, d)`: the points, q >= 0.
    origin: how they were chosen.
    pulls `(q,)`: if set, each point is evaluated that many times in a row and its value is the mean.
    clip: if set, every single value is moved into this interval first.
    note: further text for readers.
    last: whether the agent makes no further decision.
    """

    x: Array
    origin: Origin
    pulls: npt.NDArray[np.int64] | None = None
    clip: tuple[float, float] | None = None
    note: str | None = None
    last: bool = False


class Inbound(NamedTuple):
    """A message as its receiver sees it: who sent it, at which of its steps, at what time, and the arrays."""

    sender: int
    step: int
    sent: float
    payload: Payload


@runtime_checkable
class Algorithm(Protocol):
    """One published method, both halves. Settings are dataclass fields; there are no others.

    queries: number of points of every decision, or None when it varies. The engine then waits for the decision before it can
      schedule its completion.
    """

    @property
    def queries(self) -> int | None: ...

    def sends(self, step: int) -> bool:
        """Return whether agents may send at the end of a step; step 0 is before the first decision."""

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare an agent's message; None when agents never send."""

    def download(self, problem: Problem) -> Declaration | None:
        """Declare the coordinator's answer; None when it never answers."""

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Make an agent's state before its first evaluation."""

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Choose the next points, given the messages that arrived since the last call, in order of arrival."""

    def tell(self, state: Any, x: Array, y: Array) -> Any:
        """Update the state with the values `y (q,)` of the points `x (q, d)`."""

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write the message of the step that just ended, or None."""

    def server_init(self, problem: Problem) -> Any:
        """Make the coordinator's state before the first message."""

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Update the state with one message that matches the declaration."""

    def broadcast(
        self, state: Any, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Return the payloads for `recipients` when the exchange mode closes a round; agents left out receive nothing.

        Under a mode without rounds it may also write to any other agent. `staleness_weight (N,)` is the weight of each agent's
        newest message: 1, or less where it has grown stale.
        """


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A private release `(P, M)` of the messages of many agents: clipping, sampling, noise (Dai et al. 2021, Alg. 1).

    A message `(M,)` is clipped to the norm S / sqrt(P), weighted with the public `weights (P, N)`, summed over the sampled
    agents, and divided by q. Then a normal draw of standard deviation z phi_max S / q is added to every number. phi_max is the
    largest of all weights.

    blocks: P.
    clip: S, infinite for none.
    noise: z, 0 for none.
    share: q, the sampling probability.
    sampling: "poisson", independent coins, or "fixed": round(q times the available agents), without replacement.
    per_block: phi_max is the largest weight of each block.
    quantile: if set, the clipping norm follows this quantile of the messages' norms (Andrew et al. 2021).
    rate: the norm changes by factors exp(-rate (b - quantile)), where b is the share of unclipped messages.
    count_noise: noise of b, in messages; z is then the noise multiplier of both together.
    """

    blocks: Annotated[int, Ge(1)]
    clip: Annotated[float, Gt(0)]
    noise: Annotated[float, Ge(0), Lt(math.inf)]
    share: Annotated[float, Gt(0), Le(1)] = 1.0
    sampling: Annotated[str, OneOf(("poisson", "fixed"))] = "poisson"
    per_block: bool = False
    quantile: Annotated[float, Gt(0), Lt(1)] | None = None
    rate: float = 0.2
    count_noise: float = 0.0

    def __post_init__(self) -> None:
        check(self)
        if self.clip == math.inf and (self.noise or self.quantile is not None):
            raise SettingError("clip", "must be finite if there is noise or a quantile", "inf")
        if self.quantile is not None and not 2 * self.count_noise > self.noise:
            raise SettingError("count_noise", "must be above noise / 2 if there is a quantile", self.count_noise)


@runtime_checkable
class Private(Protocol):
    """Optional protocol of central differential privacy: messages pass a mechanism; the coordinator half sees releases only.

    A message is one array `(M,)`. The engine calls `released` in place of `receive`.
    """

    def mechanism(self, problem: Problem) -> Mechanism:
        """Declare the mechanism; SettingError when the settings do not suit the problem."""

    def weights(self, problem: Problem, release: int) -> Array:
        """Return the weights `(P, N)` of release number 0, 1, ...; they depend on no private data."""

    def released(self, state: Any, vectors: Array, release: int) -> Any:
        """Update the state with a release `(P, M)`."""

    def closed(self, state: Any) -> Any:
        """Update the state after the last release; agents then follow their surrogates alone."""


class Disclosure(NamedTuple):
    """The privacy cost of one message that its sender has hidden.

    With the mechanism "laplace" it has `numbers` means of evaluations. One evaluation moves one of them by `sensitivity` at
    most, `scale` is that of the noise, and epsilon is their quotient. No evaluation is in two means, so the epsilon of several
    messages is the largest. With "exponential" it has `numbers` choices by utilities of this sensitivity. Epsilon holds for all
    that the sender has observed, and adds up over messages.
    """

    numbers: int
    sensitivity: float
    scale: float
    mechanism: Literal["laplace", "exponential"] = "laplace"

    @property
    def epsilon(self) -> float:
        """Return the epsilon of the message."""
        return self.sensitivity / self.scale


@runtime_checkable
class LocallyPrivate(Protocol):
    """Optional protocol of local differential privacy: agents hide what they know in their messages before sending them.

    A repeated message has the same bits, and a message holds no more than its `Disclosure` says. Where that holds for single
    evaluations, the value of one may not replace that of a failed one, and such a run is refused.
    """

    @property
    def hides(self) -> bool:
        """Return whether these settings hide anything."""

    def disclosure(self, state: Any, payload: Payload) -> Disclosure | None:
        """Return the disclosure of a message; None when nothing is hidden. `state` is the coordinator's."""


@runtime_checkable
class Overlapping(Protocol):
    """Optional protocol of asynchronous evaluation: the algorithm can decide while earlier points are being evaluated."""

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points `(p, d)` that are being evaluated, in place of those of the last call."""


@runtime_checkable
class Avoiding(Protocol):
    """Optional protocol of methods that learn from failed evaluations; other methods observe the worst value so far instead.

    A failed evaluation is no observation: it changes decisions and is in no message.
    """

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points `(f, d)` whose evaluations failed, in place of those of the last call."""


class AnswerColumns(NamedTuple):
    """The messages that arrived for some of k agents: the agents' `places (l,)`, in ascending order, and the arrays.

    An array of `payload` is `(l, ...)`, or `(1, ...)` where all messages share it. The last message of an agent comes last.
    """

    places: Numbers
    payload: Mapping[str, npt.NDArray[Any]]


class StateColumns(Protocol):
    """The states of many agents of a method in common arrays; `slots (k,)` are the rows of the agents that are meant.

    Each function does for every agent what the method's function of this name does, with the same bits in any company. With a
    function `pending(slots, points)`, points `(p, d)` of each agent, they also hold agents whose evaluations overlap.
    """

    def grow(self, count: int) -> None:
        """Make room for `count` agents."""

    def state(self, slot: int) -> Any:
        """Return an agent's state as the method's functions know it."""

    def put(self, slot: int, state: Any) -> bool:
        """Store an agent's state; False, with nothing stored, where the arrays cannot hold it."""

    def start(self, slots: Numbers) -> None:
        """Store the states before the first evaluation."""

    def ask(self, slots: Numbers, streams: StreamBlock, answers: AnswerColumns | None) -> tuple[Array, npt.NDArray[np.int8]]:
        """Return the points of all agents, one agent after another, `(k q, d)`, and the number of each one's origin."""

    def tell(self, slots: Numbers, counts: Numbers, x: Array, y: Array) -> None:
        """Append `counts (k,)` observations of each agent."""

    def outbox(self, slots: Numbers, streams: StreamBlock) -> dict[str, npt.NDArray[Any]] | None:
        """Return the arrays `(k, ...)` of all messages."""

    def turn(self, slots: Numbers, counts: Numbers, asked: npt.NDArray[np.bool_], forth: bool) -> None:
        """Undo a step, which made so many observations, after `ask` if it was `asked`; or do it again, if `forth`."""

    def save(self, slots: Numbers) -> Any:
        """Return states as plain data."""

    def load(self, slots: Numbers, saved: Any) -> None:
        """Store what `save` returned."""


class StatelessColumns:
    """Columns of a method whose agents have no state."""

    def grow(self, count: int) -> None:
        """Do nothing, as all functions here."""

    def put(self, slot: int, state: Any) -> bool:
        """Return True."""
        return True

    def start(self, slots: Numbers) -> None:
        """Do nothing."""

    def pending(self, slots: Numbers, points: Sequence[Array]) -> None:
        """Do nothing."""

    def tell(self, slots: Numbers, counts: Numbers, x: Array, y: Array) -> None:
        """Do nothing."""

    def outbox(self, slots: Numbers, streams: StreamBlock) -> dict[str, npt.NDArray[Any]] | None:
        """Send nothing."""
        return None

    def turn(self, slots: Numbers, counts: Numbers, asked: npt.NDArray[np.bool_], forth: bool) -> None:
        """Do nothing."""

    def save(self, slots: Numbers) -> Any:
        """Return None."""

    def load(self, slots: Numbers, saved: Any) -> None:
        """Do nothing."""


@runtime_checkable
class Multiple(Protocol):
    """Optional protocol of methods that learn several objectives or constraints.

    In a study with more than one objective or with a constraint, `tell_outcomes` is called in place of `tell`.
    """

    def tell_outcomes(self, state: Any, x: Array, values: Array, margins: Array) -> Any:
        """Update the state with the outcomes of the points `x (q, d)`.

        `values (q, m)` of the objectives are to be maximised; `margins (q, c)` are at least 0 where a bound is kept. NaN stands
        for a metric that is not known: an evaluation that failed may have some metrics.
        """

    def handles(self, problem: Problem) -> str:
        """Return why the settings do not suit the objectives and constraints of a problem; empty where they do."""


@runtime_checkable
class CostAware(Protocol):
    """Optional protocol of methods that choose by the costs of evaluations, which the objective reports."""

    @property
    def needs_costs(self) -> bool:
        """Return whether these settings use costs; a study whose objectives report none is then refused."""

    def costing(self, state: Any, cost: Callable[[Array], Array]) -> Any:
        """Record the costs of the evaluated points before a decision; `cost` takes points `(n, d)` and returns `(n,)`."""


@runtime_checkable
class Columnar(Protocol):
    """Optional protocol of methods that serve many agents at once, in a fraction of the time."""

    def columns(self, problem: Problem, streams: Streams) -> StateColumns | None:
        """Return empty columns for the agents of a run; None where these settings have none."""


class Occasions(NamedTuple):
    """Answers that follow messages: answer number `numbers (l,)` to each of `recipients (l,)`, once `after (l,)` are received.

    All are in order. Those with one number belong to one occasion, of different recipients in ascending order.
    """

    recipients: Numbers
    after: Numbers
    numbers: Numbers


@runtime_checkable
class JointHalf(Protocol):
    """Optional protocol of methods whose coordinator half processes many messages at once, in a fraction of the time.

    Messages and answers have fixed shapes. The function leaves the state and returns the answers that `receive` and `broadcast`
    do for one message after another, to the bit. It refuses no message that is as declared, and keeps no reference to arrays
    `payload`, which are `(k, ...)`. A subclass that overrides `receive` or `broadcast` is called one by one.
    """

    @property
    def is_joint(self) -> bool:
        """Return whether these settings can be processed so."""

    def answer_each(
        self,
        state: Any,
        senders: Numbers,
        payload: Mapping[str, npt.NDArray[Any]],
        staleness_weight: Array,
        occasions: Occasions,
        streams: Streams,
    ) -> tuple[AnswerColumns, Any]:
        """Receive the messages of `senders (k,)`, and answer on each occasion among them; that of number n has `streams.at(n)`.

        Return the answers to those recipients that are answered. End with the first occasion on which one is not.
        """


@runtime_checkable
class Phased(Protocol):
    """Optional protocol of methods that work in phases; every agent decides and sends once in each phase."""

    def phases(self, problem: Problem) -> int:
        """Bound the number of phases."""


@runtime_checkable
class Waiting(Protocol):
    """Optional protocol of methods that wait for other agents: the coordinator half learns which agents have left."""

    def left(self, state: Any, agent: int) -> Any:
        """Record that an agent has ended or is lost."""


@runtime_checkable
class Useful(Protocol):
    """A method that tells how useful the messages of agents are, for a selection of agents by usefulness."""

    @property
    def tells_usefulness(self) -> bool:
        """Check whether it does with its present settings."""

    def usefulness(self, state: Any) -> Array:
        """Return the usefulness of each agent `(N,)`, larger is better, by the coordinator's state; NaN where unknown."""


@runtime_checkable
class Starting(Protocol):
    """Optional protocol of methods with initial points of their own."""

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Make an agent's initial points `(q, d)` from uniform ones `(q, d)`, which all algorithms have in common."""


@runtime_checkable
class Anytime(Protocol):
    """Optional protocol of methods that declare their use of the budget T; without a declaration a method uses it.

    A method that does not use T makes the same first decisions with a larger budget, so that its run can be extended.
    """

    @property
    def horizon_use(self) -> str:
        """Return how T is used; empty where it is not used."""
