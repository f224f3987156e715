"""How many threads linear algebra has in a host."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
from fedbo.actors.host import Host
from threadpoolctl import threadpool_info
Host()
import scipy.linalg
blas = [found for found in threadpool_info() if found["user_api"] == "blas"]
print(any("scipy" in found["filepath"] for found in blas), {found["num_threads"] for found in blas})
"""


def test_a_host_leaves_one_thread_also_to_what_is_imported_after_it_was_made() -> None:
    surroundings = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    told = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=surroundings)
    assert (told.stdout.strip(), told.stderr) == ("True {1}", "")
