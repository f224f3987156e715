"""What all tests share: one Ray for the session, one thread for each process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """Ray on this machine, started at most once; whatever runs inside uses it."""
    import logging

    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}},
    )
    yield
    ray.shutdown()
