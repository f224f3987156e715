"""Central differential privacy for one run: sampling of agents, clipping, Gaussian noise, and a ledger of the releases.

The aggregator holds each message until the exchange mode answers. Then it clips, weights and sums all held messages and adds
noise, as the algorithm's `Mechanism` declares. Only this release reaches the coordinator half of the algorithm. Every release
is entered in a ledger. The charge of an agent follows from the actual round:

- *sampled*: secret coins sample the rounds, and neither the other participants nor their times depend on the coins. A round
  waits for all agents that begin it, and agents that are not sampled send a dummy message that takes as long. Then every
  release is charged, at the sampling's q, to every agent that optimises and to all others that could have been sampled.
- *without amplification*: every other case. Given the times of messages, a release is a sum with Gaussian noise. It is charged,
  without any gain from sampling, to the agents whose messages are in it, and to no others.

Two studies are adjacent if they differ in one agent's messages: in the other study its messages are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedbo.algorithms.base import Array, Mechanism, Payload, Private, Problem
from fedbo.algorithms.returned import updated, wrong
from fedbo.coordinator.kernel.exchange import Exchange
from fedbo.coordinator.logged.messages import RefusalReason
from fedbo.privacy.budget import AggregatorState, PrivacyBudget, PrivacyFilter
from fedbo.privacy.gaussian import clip_factors, noise_stds
from fedbo.privacy.ledger import LedgerEntry
from fedbo.privacy.mask_sizes import Unmasking
from fedbo.privacy.noise import NoiseSource, Secure
from fedbo.privacy.secure_aggregation import SiteSums, contributions, secure_sum

GRID = 2.0**-20  # what is released is rounded to a multiple of this part of its noise


class PrivateAggregator:
    """The private aggregation of one run, which keeps its state separately.

    `no_amplification`: why sampling gains nothing. `site_sums`: real sites that mask their messages. `least`: fewest agents of
    a round with masks.
    """

    def __init__(
        self, algorithm: Private, problem: Problem, budget: PrivacyBudget, source: NoiseSource, no_amplification: str
    ) -> None:
        self.mechanism, self.no_amplification = algorithm.mechanism(problem), no_amplification
        self.secure_aggregation = budget.secure_aggregation
        self.site_sums: SiteSums | None = None
        self.least = 2
        self.entries: list[LedgerEntry] = []
        self._algorithm, self._problem, self._source = algorithm, problem, source
        self._filter = PrivacyFilter(self.mechanism, problem, budget, amplified=not no_amplification)

    def fresh(self, length: int) -> AggregatorState:
        """Return the state before the first message of this `length`."""
        n = self._problem.n_agents
        return AggregatorState(np.zeros((n, length)), np.zeros(n), np.full(n, -1), self.mechanism.clip, np.zeros(n))

    def sample(self, state: AggregatorState, agents: Sequence[int]) -> set[int]:
        """Sample the agents that send, among those that begin a round."""
        if state.budget_exhausted:
            return set()
        state.eligible = sorted(agents)
        state.sampled = self._draw(state)
        if self.site_sums is not None:
            self.site_sums.open(state.release, state.sampled)
        return set(state.sampled)

    def _draw(self, state: AggregatorState) -> list[int]:
        mechanism = self.mechanism
        if mechanism.share == 1.0:
            return state.eligible
        coins = self._source.uniform("privacy sampling", state.release, (self._problem.n_agents,))
        if mechanism.sampling == "poisson":
            return [agent for agent in state.eligible if coins[agent] < mechanism.share]
        count = max(1, round(mechanism.share * len(state.eligible)))
        return sorted(sorted(state.eligible, key=lambda agent: (coins[agent], agent))[:count])

    def accept(self, state: AggregatorState, sender: int, base: int, payload: Payload, asked: bool) -> RefusalReason | None:
        """Hold a message for the open release, in place of an older one, or return why it is refused."""
        if state.budget_exhausted:
            return "budget_spent"
        if not asked:
            return "not_sampled"
        if base < state.bases[sender]:
            return "superseded"
        (state.held[sender],) = payload.values()
        # Measured here, where the message is in the cache: a release then reads all of them once.
        with np.errstate(over="ignore"):  # beyond 1e154 a message is clipped to nothing
            state.norms[sender] = math.sqrt(np.vdot(state.held[sender], state.held[sender]))
        state.bases[sender] = base
        return None

    def unmasking(self, state: AggregatorState, there: Callable[[int], bool]) -> Unmasking | None:
        """Return how the open release is unmasked, by agents that have sent and are still present; None without masks.

        If they are too few, no message can be read: the release is as if no agent had sent.
        """
        arrived = np.flatnonzero(state.bases >= 0).tolist()
        cohort = sorted({*state.sampled, *arrived})
        if self.secure_aggregation is None or not cohort:
            return None
        if self.site_sums is not None:
            found = self.site_sums.unmask(state.release, arrived)
        else:
            needed = max(self.least, self.secure_aggregation.needed(len(cohort)))
            found = Unmasking(cohort, arrived, list(filter(there, arrived)), needed)
        unread = arrived if found.has_failed else [agent for agent in arrived if agent not in found.sent]
        state.held[unread], state.norms[unread], state.bases[unread] = 0.0, 0.0, -1
        return found

    def release(
        self, state: AggregatorState, server: Any, staleness_weights: Array, now: float, unmasking: Unmasking | None = None
    ) -> Any:
        """Release the held messages, if the budget allows it, to the coordinator half; return the next state of that half."""
        arrived = np.flatnonzero(state.bases >= 0)
        weights = self._weights(state.release)
        charge, charged, norms = self._filter.cost(state, weights, staleness_weights, arrived)
        refused = self._filter.refusal(state, charge, charged, norms)
        entry = self._entry(state, now, arrived, weights)._replace(
            share=charge.share,
            sampling=charge.sampling,
            population=charge.population,
            charged=charged.tolist(),
            norms=norms.tolist(),
        )
        if refused:
            nobody: dict[str, Any] = {"arrived": [], "clipped": 0, "charged": [], "norms": []}
            self.entries.append(entry._replace(refused=refused, **nobody))
            state.budget_exhausted = True
            server = updated(self._algorithm, "closed", server)
        else:
            vectors, signal, clipped = self._vectors(state, weights, staleness_weights, arrived, unmasking)
            self.entries.append(entry._replace(clipped=clipped, signal=signal))
            self._filter.spend(state, charge, charged, norms)
            server = updated(self._algorithm, "released", server, vectors, state.release)
        state.held[arrived], state.norms[arrived], state.bases[:] = 0.0, 0.0, -1
        state.release += 1
        state.eligible, state.sampled = [], []
        return server

    def _weights(self, release: int) -> Array:
        weights = self._algorithm.weights(self._problem, release)
        shape = (self.mechanism.blocks, self._problem.n_agents)
        known = type(weights) is np.ndarray and weights.shape == shape and np.isfinite(weights).all()
        if not known or (weights < 0).any() or not weights.any(axis=1).all():
            words = f"returned wrong weights for release {release}; it must return {shape} numbers of at least 0"
            raise wrong(self._algorithm, "weights", f"{words}, with one above 0 in each row")
        return weights

    def announce(self, state: AggregatorState, payloads: Mapping[int, Any]) -> dict[int, Any]:
        """Return the answers to send: once the budget is exhausted, only to agents that have not been notified."""
        if not state.budget_exhausted:
            return dict(payloads)
        new = {agent: payload for agent, payload in payloads.items() if agent not in state.announced}
        state.announced.update(new)
        return new

    def _vectors(
        self,
        state: AggregatorState,
        weights: Array,
        staleness_weights: Array,
        arrived: npt.NDArray[np.int64],
        unmasking: Unmasking | None = None,
    ) -> tuple[Array, float, int]:
        """Compute a release `(P, M)`; also the norm of the sum without noise, and the number of clipped messages."""
        mechanism, number = self.mechanism, state.release
        sd = noise_stds(mechanism, weights, state.clip)[:, None]
        messages, norms = state.held, state.norms
        if len(arrived) < len(messages):
            messages, norms = messages[arrived], norms[arrived]
            weights, staleness_weights = weights[:, arrived], staleness_weights[arrived]
        scale, clipped = clip_factors(norms, state.clip / math.sqrt(mechanism.blocks))
        weights = weights * (scale * staleness_weights)
        if unmasking is None or unmasking.has_failed:
            total = weights @ messages / mechanism.share
        else:
            total = self._unmasked_sum(messages, weights / mechanism.share, arrived, unmasking, number)
        vectors = total
        if mechanism.noise > 0:
            grid = GRID * 2.0 ** np.floor(np.log2(sd))
            noise = self._source.normal("privacy noise", number, np.round(total / grid))
            vectors = np.round((total + sd * noise) / grid) * grid
        if mechanism.quantile is not None:
            votes = np.where(scale < 1, -0.5, 0.5) * staleness_weights * (norms > 0)
            self._adapt(state, float(votes.sum()))
        return vectors, float(np.linalg.norm(total)), clipped

    def _unmasked_sum(
        self, messages: Array, factors: Array, arrived: npt.NDArray[np.int64], unmasking: Unmasking, release: int
    ) -> Array:
        """Return the sum `(P, M)` that agents have unmasked, of messages that they shorten and weigh themselves."""
        assert self.secure_aggregation is not None
        words = unmasking.total
        if words is None:
            fixed = self.secure_aggregation.to_fixed(contributions(messages, factors), len(unmasking.cohort))
            sent = dict(zip(arrived.tolist(), fixed, strict=True))
            words = secure_sum(self.secure_aggregation, sent, unmasking, self._source, release)
        return self.secure_aggregation.from_fixed(words).reshape(self.mechanism.blocks, -1)

    def _adapt(self, state: AggregatorState, votes: float) -> None:
        """Adapt the clipping norm to its quantile (Andrew et al. 2021, Algorithm 1).

        An agent's vote is 1/2 where its message is not clipped, -1/2 where it is, less where the message has less weight, and
        0 where it is zeros. So zeros are as good as no message, and no agent moves the sum by more than 1/2.
        """
        mechanism = self.mechanism
        grid = GRID * mechanism.count_noise
        hidden = np.array([round(votes / grid) if grid else votes], dtype=np.float64)
        noise = self._source.normal("privacy count", state.release, hidden)[0]
        centred = votes + mechanism.count_noise * noise
        centred = round(centred / grid) * grid if grid else centred
        share = 0.5 + centred / (mechanism.share * self._problem.n_agents)
        assert mechanism.quantile is not None
        state.clip *= math.exp(-mechanism.rate * (share - mechanism.quantile))

    def _entry(self, state: AggregatorState, now: float, arrived: npt.NDArray[np.int64], weights: Array) -> LedgerEntry:
        mechanism = self.mechanism
        # Where there is no gain from sampling, agents may also be in a release that were asked before its round was opened.
        heard = arrived.tolist()
        return LedgerEntry(
            time=now,
            release=state.release,
            eligible=sorted({*state.eligible, *heard}),
            sampled=sorted({*state.sampled, *heard}),
            arrived=heard,
            clipped=0,
            clip=state.clip,
            sensitivity=state.clip * float(weights.max()) / mechanism.share,
            noise_multiplier=mechanism.noise,
            noise=noise_stds(mechanism, weights, state.clip).tolist(),
            numbers=mechanism.blocks * state.held.shape[1],
            share=mechanism.share,
            sampling=mechanism.sampling,
            population=0,
            charged=[],
            norms=[],
            whole=self.no_amplification,
            secure=isinstance(self._source, Secure),
            signal=0.0,
            refused="",
        )


@runtime_checkable
class Sampled(Protocol):
    """An exchange mode that declares what its rounds reveal about the sampled agents (decision 008).

    For a mode without this protocol, no gain from sampling is claimed.
    """

    def reveals(self, sampling: str) -> str:
        """Return what reveals the sampled agents, under a `sampling` of `Mechanism`; empty only if provably nothing does.

        Where it is empty, a private message that misses its round is dropped, even under a mode that accepts late messages.
        """


def revealed(exchange: Exchange, sampling: str) -> str:
    """Return why this mode has no gain from `sampling`; empty only where the mode itself declares that nothing is revealed."""
    if isinstance(exchange, Sampled):
        return exchange.reveals(sampling)
    return f"mode '{exchange.mode}' does not say what its rounds tell of who was asked"


def why_not_amplified(mechanism: Mechanism, exchange: Exchange, real_time: bool, masked: bool) -> str:
    """Return why releases are charged without a gain from sampling; empty when the gain can be claimed.

    The gain needs coins that cannot be guessed from other events: except through their own coins, participation of agents must
    not depend on the sample. Exchange modes declare this themselves; without such a declaration no gain is claimed.
    """
    if not mechanism.noise:
        return "it adds no noise"
    if mechanism.share == 1.0:
        return "every agent is selected"
    if not exchange.is_synchronous:
        return f"under '{exchange.mode}' there are no rounds to sample"
    if real_time:
        return "in real time, timing may depend on the selected agents"
    if masked:
        return "with secure aggregation, agents know who was selected"
    return revealed(exchange, mechanism.sampling)
