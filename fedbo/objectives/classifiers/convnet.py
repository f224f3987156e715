"""A small convolutional network for images of 28 x 28 pixels, trained in one thread: its errors are a function of its seed.

It has two convolutions of 5 x 5 that halve the image by their stride (Springenberg et al. 2015, in place of pooling), dropout
(Srivastava et al. 2014) and one dense layer. Initial weights follow He et al. 2015; training is stochastic gradient descent
with momentum. The code uses functions of one weight vector: PyTorch's layers draw from one stream of the whole process, and its
optimisers take two seconds to import.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import LibraryMissingError
from fedbo.objectives.classifiers.qmnist import Labels, Pixels

MEAN, DEVIATION = 0.1307, 0.3081  # of all pixels of MNIST's training images, where ink is 1
FEATURES = 32 * 4 * 4
SHAPES = ((16, 1, 5, 5), (16,), (32, 16, 5, 5), (32,), (10, FEATURES), (10,))
SIZES = [math.prod(shape) for shape in SHAPES]
MOMENTUM = 0.9
BATCH = 16  # about so many images a step: an epoch is dealt into batches of nearly equal size

Seen = tuple[Pixels, Labels]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Training settings: `l2` weighs half the squared norm of the weights, `dropout` leaves out so many features."""

    learning_rate: float
    l2: float
    dropout: float
    epochs: int
    seed: int


def require_torch(objective: str) -> None:
    """Check that PyTorch is installed, without the two seconds of its import; LibraryMissingError otherwise."""
    if find_spec("torch") is None:
        raise LibraryMissingError(f"the objective {objective!r} requires PyTorch; install it with: pip install torch")


def trained(seen: Seen, recipe: Recipe) -> Weights:
    """Train a network on images `(n, 28, 28)` with labels `(n,)`; return its weights `(w,)`.

    The same arguments produce the same bits in any process, independently of PyTorch's global seed and number of threads.
    Training uses one thread, since several threads add up in another order. They are also slower: on a busy machine two took 30
    times as long.
    """
    import torch

    with _one_thread(torch):
        weights: Weights = _descended(torch, *_tensors(torch, seen), recipe).numpy()
        return weights


def share_wrong(weights: Weights, seen: Seen) -> float:
    """Return the share of misclassified images `(n, 28, 28)` with labels `(n,)`, in [0, 1]."""
    import torch

    with _one_thread(torch), torch.no_grad():
        images, label = _tensors(torch, seen)
        wrong = _logits(torch, torch.tensor(weights, device="cpu"), images, 1.0).argmax(dim=1) != label
        return int(wrong.sum()) / len(label)


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _tensors(torch: Any, seen: Seen) -> tuple[Any, Any]:
    images, label = seen
    pixels = torch.tensor(images, dtype=torch.float32, device="cpu").unsqueeze(1) / 255.0
    return (pixels - MEAN) / DEVIATION, torch.tensor(label, dtype=torch.int64, device="cpu")


def _descended(torch: Any, images: Any, label: Any, recipe: Recipe) -> Any:
    """Return the weights `(w,)` after training; initial weights, order of images and dropout depend on the seed alone."""
    draws = torch.Generator(device="cpu").manual_seed(recipe.seed)
    weights = _initial(torch, draws)
    velocity = torch.zeros_like(weights)
    batches = max(1, round(len(label) / BATCH))
    for _ in range(recipe.epochs):
        for batch in torch.randperm(len(label), generator=draws, device="cpu").tensor_split(batches):
            kept = torch.rand((len(batch), FEATURES), generator=draws, dtype=torch.float32, device="cpu") >= recipe.dropout
            slope = _slope(torch, weights, images[batch], label[batch], kept / (1.0 - recipe.dropout))
            velocity = MOMENTUM * velocity + slope + recipe.l2 * weights
            weights = weights - recipe.learning_rate * velocity
    return weights


def _initial(torch: Any, draws: Any) -> Any:
    """Draw the weights `(w,)`, one layer after the other: of variance 2 / inputs (He et al. 2015, Eq. 10), biases 0."""
    layers = []
    for shape, size in zip(SHAPES, SIZES, strict=True):
        scale = math.sqrt(2.0 / math.prod(shape[1:])) if len(shape) > 1 else 0.0
        layers.append(scale * torch.randn(size, generator=draws, dtype=torch.float32, device="cpu"))
    return torch.cat(layers)


def _slope(torch: Any, weights: Any, images: Any, label: Any, scale: Any) -> Any:
    free = weights.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(_logits(torch, free, images, scale), label)
    (slope,) = torch.autograd.grad(loss, free)
    return slope


def _logits(torch: Any, weights: Any, images: Any, scale: Any) -> Any:
    """Return the logits `(n, 10)` of images `(n, 1, 28, 28)`, their features times `scale`, which is 0 for dropped ones."""
    f = torch.nn.functional
    first, b1, second, b2, dense, b3 = (part.view(shape) for part, shape in zip(weights.split(SIZES), SHAPES, strict=True))
    halved = f.relu(f.conv2d(images, first, b1, stride=2))
    features = f.relu(f.conv2d(halved, second, b2, stride=2)).flatten(start_dim=1)
    return f.linear(features * scale, dense, b3)
