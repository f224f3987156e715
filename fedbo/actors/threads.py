"""The threads of linear algebra: one in each process, since replicates and hosts are what runs in parallel."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def blas_threads() -> ThreadpoolController:
    """The libraries of linear algebra in this process; `.limit(limits=1)` leaves each one thread.

    Those of SciPy are loaded here: modules load SciPy when they first call it, and what is loaded later would not be limited.
    """
    importlib.import_module("scipy.linalg")
    return _found(tuple(sys.modules))


@lru_cache(maxsize=1)
def _found(modules: tuple[str, ...]) -> ThreadpoolController:
    """Look through the libraries of this process, which takes a tenth of a small run; once for the same modules."""
    return ThreadpoolController()
