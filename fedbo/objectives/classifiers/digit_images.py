"""The handwritten digits that scikit-learn ships: 1,797 images of 8 x 8 pixels (Alpaydin and Kaynak 1998)."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from fedbo.objectives.base import Array

Indices = npt.NDArray[np.int64]


@cache
def digit_images() -> tuple[Array, Indices]:
    """Return the images `(1797, 64)`, with pixels from 0 to 16, and their labels `(1797,)`."""
    from sklearn.datasets import load_digits

    images, label = load_digits(return_X_y=True)
    return images, label.astype(np.int64)
