"""The protocol of a federated optimisation method: frozen settings, an agent half, a coordinator half, and explicit states.

An algorithm is a frozen dataclass of settings. Each function takes a state and must return the next one, so the state is at
once what Ray ships, what a checkpoint holds and what a replay compares. States are named tuples or frozen dataclasses of
arrays, numbers and strings. Points lie in the unit cube `[0, 1]^d`, and larger values are better.

The coordinator half owns its state: `receive`, `broadcast` and `released` may change its arrays in place, since no other copy
is kept. The agent half is pure: the state before a step is kept, and restored when the step is begun again after a crash.
Messages are read by several receivers, so nobody writes to their arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Le, Lt

from fedbo.algorithms.streams import Streams
from fedbo.settings.errors import SettingError
from fedbo.settings.ranges import OneOf, check
from fedbo.surrogates.projected import Lattice

Array = npt.NDArray[np.float64]
Payload = Mapping[str, npt.NDArray[Any]]


LONGEST = 2**20  # rows of what varies in length, where a method does not bound it closer


@dataclass(frozen=True, slots=True)
class Field:
    """One named array of a message: its dtype, its shape, whether NaN and infinity are refused, and whether it is `positive`.

    Positive is a square matrix that is symmetric and positive semi-definite up to rounding, such as a covariance: one that was
    damaged on its way is refused by the coordinator, since whoever received it could not factorise it.
    A shape holds None where a length varies from message to message. All that vary in one message are the same number, so that
    the size of a message says what it is, and nothing else need be sent.
    `longest` bounds a length that varies: a message that asks for more is refused before it is read.
    Numbers that are `observed` are values, or follow from them: an agent that lies sends others, from `low` to `high`, one for
    all or one for each of the last axis. The coordinator does not check these bounds.
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

    `dim` is d, `n_agents` is N, `targets` are the agents that optimise (the others only send), `initial` is the number of
    points that each target is given before its first decision and `iterations` its budget T of decisions after them;
    `history` is the number t_n of observations that each agent has made in an earlier task of its own. Where agents are unequal
    these are the largest of all, and so is `pulls`: an agent may be given less, and end sooner.
    `history_x (t_n, d)` and `history_y (t_n,)` are what this agent learned there, with fewer rows where evaluations failed;
    they are None where there was no such task, and at the coordinator. `pulls` is the number T of evaluations that an agent may
    make in all, its rounds and `initial` points included, where the budget counts them, else 0; `iterations` is T too then, for
    no more decisions than that can evaluate anything. `rounds` says whether agents wait for rounds to close, and are then
    answered together; else they go on, but for those whose decision has no points, which wait for an answer. `lattice` says
    which points can be evaluated, where that is not all of the cube: others are rounded to them.
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


def horizon(problem: Problem) -> int:
    """Give T, the evaluations of each agent; SettingError where the budget counts decisions, of which one may make many."""
    if not problem.pulls:
        raise SettingError("name", "needs the number of evaluations of each agent: give [budget] pulls in place of iterations")
    return problem.pulls


# Where a point came from: given to begin with; chosen by the agent's own surrogate; by what others have sent; uniform in the
# place of that, as a control; at random; agreed on in the end; the next of a tree; one of a batch, or of what is left over
# when the batches are done; the best one known, while waiting for an answer; or there is no point.
Origin = Literal["initial", "own", "federated", "uniform", "random", "agreed", "tree", "batch", "rest", "waiting", "none"]
ORIGINS: frozenset[str] = frozenset(get_args(Origin))


class Decision(NamedTuple):
    """The points to evaluate next, `x (q, d)` with q >= 0, and where they came from; `note` may say more, for readers only.

    With `pulls (q,)` each point is evaluated so many times in a row and what is told of it is the mean; with `clip` every
    single value is moved into that interval before. Without them each point is evaluated once and told as it is.
    """

    x: Array
    origin: Origin
    pulls: npt.NDArray[np.int64] | None = None
    clip: tuple[float, float] | None = None
    note: str | None = None


class Inbound(NamedTuple):
    """A message as its receiver sees it: who sent it, at which of its steps, at what time, and the arrays."""

    sender: int
    step: int
    sent: float
    payload: Payload


@runtime_checkable
class Algorithm(Protocol):
    """One published method, both halves. Settings are dataclass fields; there are no others.

    `queries` is the number of points of every decision, or None when it varies (the engine then waits for the decision
    before it can schedule its completion).
    """

    @property
    def queries(self) -> int | None: ...

    def sends(self, step: int) -> bool:
        """Say whether agents have something to send at the end of a step; step 0 is the time before the first decision."""

    def upload(self, problem: Problem) -> Declaration | None:
        """Declare what an agent sends; None when it never sends."""

    def download(self, problem: Problem) -> Declaration | None:
        """Declare what the coordinator sends back; None when it never does."""

    def agent_init(self, problem: Problem, streams: Streams) -> Any:
        """Make an agent's state before its first evaluation."""

    def ask(self, state: Any, inbox: Sequence[Inbound], streams: Streams) -> tuple[Decision, Any]:
        """Choose the next points, given the messages that arrived since the last call, in order of arrival."""

    def tell(self, state: Any, x: Array, y: Array) -> Any:
        """Take in the values `y (q,)` of the points `x (q, d)`."""

    def outbox(self, state: Any, streams: Streams) -> tuple[Payload | None, Any]:
        """Write the message of the step that just ended, or None."""

    def server_init(self, problem: Problem) -> Any:
        """Make the coordinator's state before the first message."""

    def receive(self, state: Any, message: Inbound, now: float) -> Any:
        """Take in one message that has passed the declaration."""

    def broadcast(
        self, state: Any, recipients: Sequence[int], staleness_weight: Array, streams: Streams
    ) -> tuple[dict[int, Payload], Any]:
        """Write to `recipients`, when the exchange mode closes a round; agents left out of the result get nothing.

        Under a mode without rounds it may write to any other agent besides.
        `staleness_weight (N,)` is what each agent's newest message counts for by now: 1, or less where it has grown stale.
        """


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A private release `(P, M)` of the messages of many agents: clipping, sampling, noise (Dai et al. 2021, Alg. 1).

    A message `(M,)` is clipped to the norm S / sqrt(P), weighted with the public `weights (P, N)`, summed over the agents that
    were sampled with probability `share` q, and over q; then a normal draw of standard deviation z phi_max S / q is added to
    every number. `blocks` is P, `clip` S (infinite for none), `noise` z (0 for none). phi_max is the largest of all weights,
    or, with `per_block`, the largest of a block's own.

    `sampling` is "poisson", independent coins, or "fixed": as many as round(q times those who could be), without replacement.

    With a `quantile` the clipping norm follows that quantile of the messages' norms, by factors exp(-`rate` (b - quantile)),
    where b is the share of unclipped messages, known with noise of `count_noise` messages (Andrew et al. 2021); z is then
    the noise multiplier of both together.
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
            raise SettingError("clip", "must be finite where there is noise or a quantile", "inf")
        if self.quantile is not None and not 2 * self.count_noise > self.noise:
            raise SettingError("count_noise", "must be above noise / 2 where there is a quantile", self.count_noise)


@runtime_checkable
class Private(Protocol):
    """Optional protocol of central differential privacy: messages pass a mechanism; the coordinator half sees releases only.

    A message is one array `(M,)`, and instead of `receive` the coordinator half is told what was released.
    """

    def mechanism(self, problem: Problem) -> Mechanism:
        """Declare the mechanism; SettingError when the settings do not suit the problem."""

    def weights(self, problem: Problem, release: int) -> Array:
        """Give the weights `(P, N)` of release number 0, 1, ...; they depend on nothing that is private."""

    def released(self, state: Any, vectors: Array, release: int) -> Any:
        """Take in a release `(P, M)`."""

    def closed(self, state: Any) -> Any:
        """Take in that nothing more will be released: whom this is told follows its own surrogate from then on."""


class Disclosure(NamedTuple):
    """The privacy cost of one message that its sender has hidden: `numbers` means of evaluations with Laplace noise.

    One evaluation moves one of them by `sensitivity` at most, and `scale` is that of the noise; epsilon is their quotient.
    """

    numbers: int
    sensitivity: float
    scale: float

    @property
    def epsilon(self) -> float:
        """Give the epsilon that it costs every evaluation in it."""
        return self.sensitivity / self.scale


@runtime_checkable
class LocallyPrivate(Protocol):
    """Optional protocol of local differential privacy: agents hide their messages themselves, before these leave them.

    Every evaluation enters one number of one message at most; what is sent again is the same to the bit. Where the value of one
    may be told in place of another that failed, that does not hold, and a run is refused.
    """

    @property
    def hides(self) -> bool:
        """Say whether anything is hidden, by these settings."""

    def disclosure(self, state: Any, payload: Payload) -> Disclosure | None:
        """Say what a message gives away; None when nothing is hidden. `state` is the coordinator's."""


@runtime_checkable
class Overlapping(Protocol):
    """Optional protocol of asynchronous evaluation: the algorithm can decide while earlier points are being evaluated."""

    def pending(self, state: Any, x: Array) -> Any:
        """Record the points `(p, d)` that are being evaluated, in place of those of the last call."""


@runtime_checkable
class Avoiding(Protocol):
    """Optional protocol of methods that learn from failed evaluations; others are told the worst value seen in their place.

    What failed is no observation: it changes decisions, and is in no message.
    """

    def avoiding(self, state: Any, x: Array) -> Any:
        """Record the points `(f, d)` whose evaluations failed, in place of those of the last call."""


@runtime_checkable
class Blockwise(Protocol):
    """Optional protocol of methods that serve several agents at once, in less time and with the same bits as one by one."""

    def ask_each(self, asked: Sequence[tuple[Any, Sequence[Inbound], Streams]]) -> list[tuple[Decision, Any]]:
        """Decide for each agent as `ask` does."""

    def outbox_each(self, sending: Sequence[tuple[Any, Streams]]) -> list[tuple[Payload | None, Any]]:
        """Write each agent's message as `outbox` does."""


@runtime_checkable
class Phased(Protocol):
    """Optional protocol of methods that work in phases, in each of which every agent decides and sends once."""

    def phases(self, problem: Problem) -> int:
        """Bound the number of phases."""


@runtime_checkable
class Waiting(Protocol):
    """Optional protocol of methods that wait for other agents: the coordinator half is told who takes no further part."""

    def left(self, state: Any, agent: int) -> Any:
        """Take note that an agent has ended, or is lost for good."""


@runtime_checkable
class Starting(Protocol):
    """Optional protocol of methods with initial points of their own."""

    def initial_points(self, problem: Problem, uniform: Array) -> Array:
        """Make an agent's initial points `(q, d)` from uniform ones `(q, d)`, which all algorithms have in common."""


@runtime_checkable
class Anytime(Protocol):
    """Optional protocol of methods that say what they use the budget T for; one that says nothing is taken to use it.

    With a larger budget a method that does not use it decides at first as with a smaller one, so that its run can be extended.
    """

    @property
    def horizon_use(self) -> str:
        """Say what T is used for; empty where it is not used."""
