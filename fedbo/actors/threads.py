"""The threads of linear algebra: one in each process, since replicates and hosts run in parallel instead."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache

from threadpoolctl import ThreadpoolController


def blas_threads() -> ThreadpoolController:
    """Return the controller of the linear algebra libraries in this process; `.limit(limits=1)` leaves each one thread.

    SciPy's are loaded here: modules load SciPy at its first use, and libraries loaded later would not be limited.
    """
    importlib.import_module("scipy.linalg")
    return _found(len(sys.modules), next(reversed(sys.modules)))


def kernels() -> str:
    """Return the kernels of linear algebra that suit this processor, such as "Haswell": the last digits may depend on them."""
    return ", ".join(sorted({str(library.get("architecture", "")) for library in blas_threads().info()} - {""}))


@lru_cache(maxsize=1)
def _found(count: int, last: str) -> ThreadpoolController:
    """Return the controller, which takes a tenth of a small run to find; once for so many loaded modules and the last one."""
    return ThreadpoolController()
