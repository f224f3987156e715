"""Attack the real private aggregator: bound epsilon from below by telling neighbouring worlds apart, over many releases.

In one world agent 0 says what it says, in the other its messages are zeros; all else is alike, but for fresh coins and noise.
Whoever is told all releases guesses the world by the statistic that tells most. How often that succeeds bounds epsilon from
below, whatever the mechanism is: at any event E, epsilon >= log((P(E) - delta) / Q(E)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from private_runs import NUMBERS, Stand, said
from scipy import stats

from fedbo.algorithms.base import Array, Mechanism
from fedbo.algorithms.streams import Streams
from fedbo.privacy import aggregator, budget
from fedbo.privacy.ledger import accounted, table_of
from fedbo.privacy.noise import Seeded

DELTA, CONFIDENCE = 0.02, 0.99

# Of even releases (P, N); odd ones have the rows swapped.
WEIGHTS = np.array([[0.60, 0.20, 0.10, 0.10], [0.15, 0.55, 0.20, 0.10]])


def weights_of(release: int) -> Array:
    """Give the public weights of a release, which differ from block to block and from one release to the next."""
    return WEIGHTS[:: -1 if release % 2 else 1]


class Seen(NamedTuple):
    """What an attacker sees of one trial and knows besides.

    `vectors (k, P, M)` are the releases, `part (k, P, M)` is what agent 0 would add to each, both over the standard deviation
    of the noise that is promised; `votes` is by how much the clipping norm says that the count of unclipped messages was off.
    """

    vectors: Array
    part: Array
    votes: float
    law: Mechanism
    agents: int


Statistic = Callable[[Seen], float]


def along(seen: Seen) -> float:
    """Project on agent 0's part: the best there is for Gaussian noise."""
    return float((seen.vectors * seen.part).sum())


def along_with_votes(seen: Seen) -> float:
    """Project on agent 0's part in the releases and in the noisy count: it is shortened, so its vote is -1/2."""
    return along(seen) - 0.5 * seen.votes / seen.law.count_noise**2


def votes_alone(seen: Seen) -> float:
    """Look at the noisy count alone."""
    return -seen.votes


def likely(seen: Seen) -> float:
    """Give the log-likelihood ratio where agent 0 is asked by a coin, and the others say zeros."""
    return float(_mixed(seen, seen.law.share).sum())


def likely_of_some(seen: Seen) -> float:
    """The same where a release of exact zeros says that nobody was asked; of the others it is known that somebody was."""
    share = seen.law.share / (1 - (1 - seen.law.share) ** seen.agents)
    some = seen.vectors.any(axis=(1, 2))
    return float(_mixed(seen, min(share, 1 - 1e-9))[some].sum())


def likely_at_once(seen: Seen) -> float:
    """The same where one coin holds for all releases."""
    exponent = float((seen.vectors * seen.part - seen.part**2 / 2).sum())
    return float(np.logaddexp(math.log1p(-seen.law.share), math.log(seen.law.share) + exponent))


def between_blocks(seen: Seen) -> float:
    """Take one block from another: what noise they share is gone."""
    return _difference(seen.vectors[:, 0] - seen.vectors[:, 1], seen.part[:, 0] - seen.part[:, 1])


def between_releases(seen: Seen) -> float:
    """Take one release from the next."""
    return _difference(np.diff(seen.vectors, axis=0), np.diff(seen.part, axis=0))


def displaced(seen: Seen) -> float:
    """Give the log-likelihood ratio where one agent is drawn in each release, and all others say the opposite of agent 0."""
    total = 0.0
    for number, (vectors, part) in enumerate(zip(seen.vectors, seen.part, strict=True)):
        phi = weights_of(number)[:, : seen.agents]
        drawn = [part, *(-part * (phi[:, [agent]] / phi[:, [0]]) for agent in range(1, seen.agents))]
        logs = [float((vectors * one - one**2 / 2).sum()) for one in drawn]
        rest = float(np.logaddexp.reduce(logs[1:]))
        total += float(np.logaddexp(logs[0], rest) - np.logaddexp(0.0, rest))
    return total


def _mixed(seen: Seen, share: float) -> Array:
    exponent = (seen.vectors * seen.part - seen.part**2 / 2).sum(axis=(1, 2))
    return np.asarray(np.logaddexp(math.log1p(-share), math.log(share) + exponent))


def _difference(of_what: Array, part: Array) -> float:
    return float((of_what * part).sum() / (part**2).sum())


Plant = Callable[[pytest.MonkeyPatch], None]


def nothing(patch: pytest.MonkeyPatch) -> None:
    """Leave the aggregator as it is."""


def noise_halved(patch: pytest.MonkeyPatch) -> None:
    """Add half of the noise."""
    rightly = aggregator.noise_stds
    patch.setattr(aggregator, "noise_stds", lambda *known: rightly(*known) / 2)


def noise_of_another_convention(patch: pytest.MonkeyPatch) -> None:
    """Divide the sum by q and forget to do so with the noise."""
    rightly = aggregator.noise_stds
    patch.setattr(aggregator, "noise_stds", lambda law, *known: rightly(law, *known) * law.share)


def clipping_skipped(patch: pytest.MonkeyPatch) -> None:
    """Shorten nothing."""
    patch.setattr(aggregator, "clip_factors", lambda norms, bound: (np.ones(len(norms)), 0))


def sender_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """Add the clipped message of whoever comes first a second time."""
    rightly = aggregator.clip_factors

    def twice(norms: Array, bound: float) -> tuple[Array, int]:
        scale, clipped = rightly(norms, bound)
        return scale * (1 + (np.arange(len(scale)) == 0)), clipped

    patch.setattr(aggregator, "clip_factors", twice)


def blocks_clipped_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Shorten the block of each of four metrics alone, to the norm that all of them may have together."""
    rightly = aggregator.clip_factors
    patch.setattr(aggregator, "clip_factors", lambda norms, bound: rightly(norms, bound * math.sqrt(4)))


def weights_unknown(patch: pytest.MonkeyPatch) -> None:
    """Account and add noise as if all agents counted alike."""
    noise, norms = aggregator.noise_stds, budget.sensitivities
    patch.setattr(aggregator, "noise_stds", lambda law, phi, clip: noise(law, np.full_like(phi, 1 / phi.shape[1]), clip))
    patch.setattr(budget, "sensitivities", lambda law, phi: norms(law, np.full_like(phi, 1 / phi.shape[1])))


def nobody_without_noise(patch: pytest.MonkeyPatch) -> None:
    """Release the empty sum as it is."""
    rightly = aggregator.PrivateAggregator._vectors

    def bare(aggregator: Any, state: Any, weights: Array, worth: Array, arrived: Any, *given: Any) -> Any:
        if len(arrived):
            return rightly(aggregator, state, weights, worth, arrived, *given)
        return np.zeros((len(weights), state.held.shape[1])), 0.0, 0

    patch.setattr(aggregator.PrivateAggregator, "_vectors", bare)


def everybody_let_in(patch: pytest.MonkeyPatch) -> None:
    """Ask everybody, and claim the gain from sampling."""
    patch.setattr(aggregator.PrivateAggregator, "_draw", lambda aggregator, state: list(state.eligible))


def coins_thrown_once(patch: pytest.MonkeyPatch) -> None:
    """Use the coins of one release for those after it too."""
    rightly = Seeded.uniform
    patch.setattr(Seeded, "uniform", lambda self, purpose, number, shape: rightly(self, purpose, number // 24, shape))


def worth_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Charge an old message less, and add it in full."""
    rightly = aggregator.PrivateAggregator._vectors

    def in_full(aggregator: Any, state: Any, weights: Array, worth: Array, *given: Any) -> Any:
        return rightly(aggregator, state, weights, np.ones_like(worth), *given)

    patch.setattr(aggregator.PrivateAggregator, "_vectors", in_full)


def noise_of_blocks_reused(patch: pytest.MonkeyPatch) -> None:
    """Draw noise for one block, and add it to all."""
    rightly = Seeded.normal

    def one_row(self: Seeded, purpose: str, number: int, hidden: Array) -> Array:
        return np.broadcast_to(rightly(self, purpose, number, hidden[-1]), hidden.shape)

    patch.setattr(Seeded, "normal", one_row)


def noise_of_releases_reused(patch: pytest.MonkeyPatch) -> None:
    """Draw noise for one release, and add it to the next one too."""
    rightly = Seeded.normal
    patch.setattr(Seeded, "normal", lambda self, purpose, number, hidden: rightly(self, purpose, number // 2, 0 * hidden))


def count_without_noise(patch: pytest.MonkeyPatch) -> None:
    """Let the clipping norm follow the true count."""
    rightly = Seeded.normal

    def silent(self: Seeded, purpose: str, number: int, hidden: Array) -> Array:
        return rightly(self, purpose, number, hidden) * (purpose != "privacy count")

    patch.setattr(Seeded, "normal", silent)


@dataclass(frozen=True)
class Case:
    """A mechanism, what is wrong with it, and how it is attacked: by `releases` at a time, 2 `trials` times in each world.

    Without a gain from sampling (`whole`) the others say something, else zeros, or with a fixed number the opposite of agent 0.
    Everything an agent says is worth `worth`.
    """

    name: str
    law: Mechanism
    statistic: Statistic = along
    plant: Plant = nothing
    releases: int = 1
    agents: int = 4
    worth: float = 1.0
    trials: int = 1000

    @property
    def whole(self) -> bool:
        return self.law.share == 1.0 or self.plant is noise_of_another_convention


class Verdict(NamedTuple):
    """What was claimed, and what was found to be a lower bound."""

    claimed: float
    found: float

    @property
    def broken(self) -> bool:
        return self.found > self.claimed


GAUSS = Mechanism(blocks=2, clip=2.0, noise=0.73)
COINS = Mechanism(blocks=2, clip=2.0, noise=0.83, share=0.08)
RARE = Mechanism(blocks=2, clip=2.0, noise=0.556, share=0.12)
LOTS = Mechanism(blocks=2, clip=2.0, noise=0.6, share=0.25, sampling="fixed")
FOLLOW = Mechanism(blocks=2, clip=2.0, noise=0.73, quantile=0.5, count_noise=1.0)

SOUND = [
    Case("whole", GAUSS),
    Case("whole, of two releases", GAUSS, between_releases, releases=2),
    Case("whole, noise by block", replace(GAUSS, per_block=True), between_blocks),
    Case("whole, stale", GAUSS, worth=0.3),
    Case("clip follows a count", FOLLOW, along_with_votes),
    Case("sampled, alone", RARE, likely, agents=1, trials=4000),
    Case("sampled, one of 4", COINS, likely, releases=4),
    Case("a fixed number", LOTS, displaced),
    Case("sampled, 12 releases", replace(COINS, noise=1.5, share=0.25), likely, releases=12, trials=300),
]
FAULTY = [
    Case("noise halved", GAUSS, plant=noise_halved),
    Case("noise not over q", replace(GAUSS, share=0.4), plant=noise_of_another_convention),
    Case("clipping skipped", GAUSS, plant=clipping_skipped),
    Case("sender counted twice", GAUSS, plant=sender_counted_twice),
    Case("metrics clipped one by one", GAUSS, plant=blocks_clipped_one_by_one),
    Case("weights not as charged", GAUSS, plant=weights_unknown),
    Case("worth not applied", GAUSS, plant=worth_forgotten, worth=0.3),
    Case("one noise for two blocks", GAUSS, between_blocks, noise_of_blocks_reused),
    Case("one noise for two releases", GAUSS, between_releases, noise_of_releases_reused, releases=2),
    Case("count without noise", FOLLOW, votes_alone, count_without_noise),
    Case("no noise on nobody", RARE, likely_of_some, nobody_without_noise, agents=1, trials=4000),
    Case("everybody let in", COINS, likely, everybody_let_in, releases=4),
]
SUBTLE = [Case("coins thrown once", replace(COINS, noise=1.4, share=0.2), likely_at_once, coins_thrown_once, releases=24)]


def promised(law: Mechanism, phi: Array) -> Array:
    """Give the standard deviations `(P, 1)` that the paper promises, on the bound S."""
    part = law.noise if law.quantile is None else (law.noise**-2 - (2 * law.count_noise) ** -2) ** -0.5
    largest = phi.max(axis=1) if law.per_block else np.full(len(phi), phi.max())
    return np.asarray(part * largest * law.clip / law.share)[:, None]


def trials(case: Case, speaks: bool, count: int, seed: int) -> tuple[Array, float]:
    """Carry out `count` trials in one of the worlds; give the statistic of each, and the epsilon that the ledger claims."""
    law, k = case.law, case.releases

    def phi(release: int) -> Array:
        shown = weights_of(release % k)[:, : case.agents]
        return np.asarray(shown / shown.sum(axis=1, keepdims=True))

    source = Seeded(Streams(seed, int(speaks)))
    stand = Stand(law, case.agents, phi, source, whole="by hand" if case.whole else "")
    loud = said(0, 1, 12.0)
    opposite = -loud if law.sampling == "fixed" else np.zeros(NUMBERS)
    messages = {agent: (opposite if not case.whole else said(agent, 1, 1.0)) for agent in range(1, case.agents)}
    messages[0] = loud if speaks else np.zeros(NUMBERS)
    clipped = loud * law.clip / math.sqrt(law.blocks) / 12.0
    parts = [phi(number)[:, [0]] * case.worth * clipped / law.share / promised(law, phi(number)) for number in range(k)]
    scales = [promised(law, phi(number)) for number in range(k)]
    worth, found, claimed = np.full(case.agents, case.worth), [], 0.0
    for trial in range(count):
        out = []
        stand.state.clip = law.clip
        stand.state.charges.clear()
        for number in range(k):
            out.append(stand.release(messages, worth, sample=not case.whole, keep=trial == 0) / scales[number])
        if trial == 0:
            claimed = claim(stand, case.agents)
        votes = 0.0
        if law.quantile is not None:
            factor = -math.log(stand.state.clip / law.clip) / law.rate + law.quantile - 0.5
            votes = factor * law.share * case.agents
        found.append(case.statistic(Seen(np.array(out), np.array(parts), votes, law, case.agents)))
    return np.array(found), claimed


def claim(stand: Stand, agents: int) -> float:
    """Read from the ledger what agent 0 is said to have spent."""
    _, spent = accounted(table_of(stand.aggregator.entries, (0, "audit", 0)), (DELTA,), agents)
    return float(spent.to_pylist()[0]["epsilon"][0])


def audit(case: Case, seed: int = 1, times: float = 1.0) -> Verdict:
    """Attack a case with its planted fault, if it has one."""
    count = int(case.trials * times)
    with pytest.MonkeyPatch.context() as patch:
        case.plant(patch)
        inside, claimed = trials(case, True, 2 * count, seed)
        outside, _ = trials(case, False, 2 * count, seed)
    return Verdict(claimed, lower_bound(inside, outside, DELTA, CONFIDENCE))


def lower_bound(inside: Array, outside: Array, delta: float, confidence: float) -> float:
    """Bound epsilon from below, wrongly with a probability of at most 1 - `confidence`.

    The first half of the values chooses the threshold and on which side of it to look; Clopper-Pearson intervals of the second
    half, each at half of the error, make the bound.
    """
    half, error = len(inside) // 2, (1 - confidence) / 2
    sides = [(inside, outside), (-outside, -inside)]
    best = (-math.inf, 0.0, 0)
    for side, (likely, unlikely) in enumerate(sides):
        both = np.unique(np.concatenate([likely[:half], unlikely[:half]]))
        thresholds = (both[1:] + both[:-1]) / 2
        found = _bounds(likely[:half], unlikely[:half], thresholds, delta, error)
        place = int(found.argmax())
        best = max(best, (float(found[place]), float(thresholds[place]), side))
    likely, unlikely = sides[best[2]]
    return max(0.0, float(_bounds(likely[half:], unlikely[half:], np.array([best[1]]), delta, error)[0]))


def _bounds(likely: Array, unlikely: Array, thresholds: Array, delta: float, error: float) -> Array:
    """Give the bound on epsilon of each threshold, above which values are likelier in one of the worlds."""
    count, other = len(likely), len(unlikely)
    hits = count - np.searchsorted(np.sort(likely), thresholds, "right")
    misses = other - np.searchsorted(np.sort(unlikely), thresholds, "right")
    least = np.where(hits > 0, stats.beta.ppf(error, np.maximum(hits, 1), count - hits + 1), 0.0)
    most = np.where(misses < other, stats.beta.isf(error, misses + 1, np.maximum(other - misses, 1)), 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(least - delta, 0.0) / most))
