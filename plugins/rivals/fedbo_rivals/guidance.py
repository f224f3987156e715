"""Where an agent's optimum may be, as one Gaussian, and the Gaussians of many agents as few (Wei, Li and Wang 2026).

Places are points of the unit cube. A Gaussian has a diagonal covariance, so a message of it has 2 d + 2 numbers. In a search
Gaussians widen the standard deviation of an acquisition, in the surrogate's coordinates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from fedbo.algorithms.base import Array, Payload
from fedbo.algorithms.components.coordinates import to_coordinates
from fedbo.algorithms.components.inner_search import maximise_acquisition, maximise_typed_acquisition
from fedbo.algorithms.components.surrogate import LocalState
from fedbo.algorithms.components.typed_coordinates import APART, columns, embedded
from fedbo.algorithms.streams import Streams
from fedbo.surrogates.acquisition import Criterion, log_expected_improvement, prediction, upper_confidence_bound
from fedbo.surrogates.draws import Draw, KernelPart, pathwise_draw, value_and_gradient
from fedbo.surrogates.features import DEGREES_OF_FREEDOM, Features, phi
from fedbo.surrogates.posterior import Posterior

COMPONENTS, STEPS = 10, 100  # of the mixture: the most components, and steps of its fit
CLOSE = 0.05  # root mean square distance of two means, over the inputs, up to which agents mean the same place
COOLING, COOLEST = 0.1, 0.01  # the temperature over the range of values, and its least


class Gaussians(NamedTuple):
    """Weighted Gaussians in the unit cube.

    share `(k,)`: how much of the evidence each has; at least 0.
    mean, variance `(k, d)`: means and variances.
    value `(k,)`: a pessimistic value at the mean, in standard deviations of the sender's values.
    """

    share: Array
    mean: Array
    variance: Array
    value: Array


def orthogonal_features(
    rng: np.random.Generator,
    dim: int,
    count: int,
    length_scale: Array | tuple[float, ...] | float,
    kernel: str,
    variance: float,
) -> Features:
    """Draw `count` random features whose frequencies are orthogonal in blocks of `dim` (Yu et al. 2016).

    A frequency has the direction of a row of a random rotation and the length of an independent normal vector, so each one has
    the spectral density of the kernel.
    """
    blocks = -(-count // dim)
    turned = np.linalg.qr(rng.standard_normal((blocks, dim, dim)))[0].reshape(-1, dim)[:count]
    unit = turned * np.sqrt(rng.chisquare(dim, (count, 1)))
    phases = rng.uniform(0.0, 2.0 * np.pi, count)
    if kernel != "se":
        freedom = DEGREES_OF_FREEDOM[kernel]
        unit *= np.sqrt(freedom / rng.chisquare(freedom, (count, 1)))
    return Features(unit / np.asarray(length_scale), phases, variance, normalise=False)


def places_of_maxima(
    posterior: Posterior, candidates: Array, rng: np.random.Generator, draws: int, count: int
) -> npt.NDArray[np.int64]:
    """Return the candidate `(draws,)` of `(c, d)` at which each of many posterior draws is largest.

    Draws are pathwise: a function of `count` orthogonal features, plus the exact correction by the observations.
    """
    hyper, x = posterior.hyper, posterior.x
    features = orthogonal_features(rng, candidates.shape[1], count, hyper.length_scale, hyper.family, hyper.variance)
    weights = rng.standard_normal((count, draws))
    values = phi(features, candidates) @ weights
    if len(x):
        noise = np.sqrt(hyper.noise_variance) * rng.standard_normal((len(x), draws))
        shift = scipy.linalg.lapack.dpotrs(posterior.factor, phi(features, x) @ weights + noise, lower=1)[0]
        values += hyper.kernel(candidates, x) @ (posterior.alpha[:, None] - shift)
    return np.asarray(values.argmax(axis=0))


def heaviest(places: Array, seed: int) -> tuple[float, Array, Array]:
    """Return share, mean `(d,)` and variance `(d,)` of the heaviest component of a mixture fitted to places `(n, d)`.

    The mixture is scikit-learn's variational Dirichlet process with diagonal covariances.
    """
    from sklearn.exceptions import ConvergenceWarning  # not imported where nothing is sent: it takes half a second
    from sklearn.mixture import BayesianGaussianMixture

    if (np.ptp(places, axis=0) == 0.0).all():
        return 1.0, places[0].copy(), np.zeros(places.shape[1])
    mixture = BayesianGaussianMixture(
        n_components=min(COMPONENTS, len(places)),
        covariance_type="diag",
        init_params="k-means++",  # k-means itself runs in threads, and costs more than the fit
        max_iter=STEPS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the heaviest component settles first
        mixture.fit(places)
    k = int(mixture.weights_.argmax())
    return float(mixture.weights_[k]), mixture.means_[k], mixture.covariances_[k]


def prototypes(sent: Gaussians) -> tuple[Gaussians, npt.NDArray[np.int64]]:
    """Merge the Gaussians of many agents; also return which of the merged ones each went into, `(k,)`.

    Means are clustered by complete linkage up to an RMS distance of `CLOSE`. A cluster becomes the Gaussian with its moments,
    weighted by the shares; its share is their sum, and its value their mean.
    """
    if len(sent.share) == 1:
        return sent, np.zeros(1, dtype=np.int64)
    reach = CLOSE * np.sqrt(sent.mean.shape[1])
    tree = scipy.cluster.hierarchy.linkage(sent.mean, "complete")
    labels = scipy.cluster.hierarchy.fcluster(tree, reach, "distance").astype(np.int64) - 1
    member = (labels == np.arange(labels.max() + 1)[:, None]) * sent.share
    total = member.sum(axis=1)
    weight = member / total[:, None]
    mean = weight @ sent.mean
    variance = weight @ (sent.variance + sent.mean**2) - mean**2
    return Gaussians(total, mean, np.maximum(variance, 0.0), weight @ sent.value), labels


def log_weights(gaussians: Gaussians) -> Array:
    """Return the logarithms of omega_l, proportional to share_l exp(value_l / tau), `(k,)`.

    The temperature tau is the larger of `COOLEST` and `COOLING` times the range of the values.
    """
    tau = max(COOLING * float(np.ptp(gaussians.value)), COOLEST)
    heights = np.log(np.maximum(gaussians.share, 1e-300)) + gaussians.value / tau
    return np.asarray(heights - scipy.special.logsumexp(heights))


def draw_without_replacement(log_weight: Array, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw up to `count` numbers without replacement, with probabilities proportional to weights `(k,)`.

    The largest of logarithms with Gumbel noise are such a draw (Yellott 1977), also where weights underflow.
    """
    keys = log_weight + rng.gumbel(size=len(log_weight))
    return np.argsort(-keys, kind="stable")[:count]


def guide_rows(guides: Payload, coordinates: str | tuple[str, ...], seen: LocalState) -> Array:
    """Return Gaussians of the unit cube as rows for `widening`, `(p, 2 e + 1)`, in the coordinates of `seen`.

    A Gaussian stays one: its standard deviation is scaled by the mean slope of the coordinates over one of them on either side,
    which is exact for plain ones.
    """
    mean, sd = guides["mean"], np.sqrt(guides["variance"])
    low, high = np.maximum(mean - sd, 0.0), np.minimum(mean + sd, 1.0)
    width = sd * (to_coordinates(high, coordinates) - to_coordinates(low, coordinates)) / (high - low)
    centre, inverse = to_coordinates(mean, coordinates), 1.0 / np.maximum(width, 1e-9)
    if seen.lattice is not None and isinstance(coordinates, tuple):
        centre, inverse = _typed(mean, sd, inverse, coordinates, seen)
    return np.column_stack([guides["weight"], centre, inverse])


def _typed(mean: Array, sd: Array, inverse: Array, axes: tuple[str, ...], seen: LocalState) -> tuple[Array, Array]:
    """Return means and inverse standard deviations `(p, e)` in a typed space; an inactive axis has no influence.

    A category has the columns of its choices, and the standard deviation counts choices.
    """
    lattice = seen.lattice
    assert lattice is not None
    off, blocks = lattice.inactive(mean), []
    for axis, (first, last) in enumerate(columns(lattice)):
        count = last - first
        along = inverse[:, axis] if count == 1 else 1.0 / (APART * np.maximum(sd[:, axis] * count, 1.0))
        blocks.append(np.repeat(np.where(off[:, axis], 0.0, along)[:, None], count, axis=1))
    return embedded(mean, axes, lattice), np.hstack(blocks)


def maximise_guided_draw(
    posterior: Posterior,
    rows: Array | None,
    seen: LocalState,
    coordinates: str | tuple[str, ...],
    count: int,
    streams: Streams,
) -> Array:
    """Return the point `(e,)` where the mean plus S times the rest of a posterior draw of `count` features is largest."""
    draw = pathwise_draw(posterior, streams.rng("own draw"), count)
    part = draw.kernel_part
    assert part is not None
    mean = Draw(kernel_part=KernelPart(part.kernel, part.x, posterior.alpha))
    rest = draw._replace(kernel_part=part._replace(v=part.v - posterior.alpha))

    def function(u: Array) -> tuple[Array, Array]:
        expected, apart = value_and_gradient(mean, u), value_and_gradient(rest, u)
        if rows is None:
            return expected[0] + apart[0], expected[1] + apart[1]
        factor, slope = widening(rows, u)
        gradient = expected[1] + factor[:, None] * apart[1] + apart[0][:, None] * slope
        return expected[0] + factor * apart[0], gradient

    return _largest(function, seen, coordinates, streams)


def maximise_guided(
    posterior: Posterior,
    criterion: Criterion,
    rows: Array,
    seen: LocalState,
    coordinates: str | tuple[str, ...],
    streams: Streams,
) -> Array:
    """Return the point `(e,)` where a criterion is largest with S times the standard deviation."""
    judge = upper_confidence_bound if criterion.bounding else log_expected_improvement

    def function(u: Array) -> tuple[Array, Array]:
        at = prediction(posterior, u)
        factor, slope = widening(rows, u)
        wider = (factor**2)[:, None] * at.variance_gradient + (2.0 * factor * at.variance)[:, None] * slope
        return judge(at._replace(variance=factor**2 * at.variance, variance_gradient=wider), criterion.level)

    return _largest(function, seen, coordinates, streams)


def widening(guides: Array, x: Array) -> tuple[Array, Array]:
    """Return the factor S `(n,)` of the standard deviation at `x (n, d)`, and its gradient `(n, d)`.

    It is 1 + sum_p w_p exp(-|(x - mu_p) / sigma_p|^2 / 2). A row of `guides (p, 2 d + 1)` has w, mu and 1 / sigma.
    """
    dim = x.shape[1]
    inverse = guides[:, dim + 1 :]
    apart = (x[:, None] - guides[:, 1 : dim + 1]) * inverse
    heights = np.exp(-0.5 * (apart**2).sum(axis=2)) * guides[:, 0]
    return 1.0 + heights.sum(axis=1), -np.einsum("np,npd,pd->nd", heights, apart, inverse)


def _largest(
    function: Callable[[Array], tuple[Array, Array]], seen: LocalState, coordinates: str | tuple[str, ...], streams: Streams
) -> Array:
    """Return the point `(e,)` where a function with values `(n,)` and gradients `(n, e)` is largest."""
    if seen.lattice is not None and isinstance(coordinates, tuple):
        return maximise_typed_acquisition(lambda u: function(u)[0], function, seen, coordinates, streams)
    name = coordinates if isinstance(coordinates, str) else "plain"  # all of the cube, whatever its coordinates are
    return maximise_acquisition(function, seen, name, streams)
