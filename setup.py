"""The build of the package: pure Python, or with FEDBO_COMPILE=1 the event loop compiled by mypyc, to the same bits.

Compiling needs a C compiler and mypy: FEDBO_COMPILE=1 pip install --no-build-isolation .
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from setuptools import setup

# What is called for every event; nothing outside may replace a function of these modules while a program runs.
COMPILED = (
    "agent_processes",
    "core",
    "downlink",
    "environment/duration_blocks",
    "environment/durations",
    "events",
    "messages",
    "network",
    "rounds",
    "rules",
    "runtime/engine",
    "runtime/event_queue",
    "runtime/fast_path",
    "server",
    "state",
    "step_scheduler",
    "uplink",
)
# Types of libraries are checked by `make types`; to read them again would take most of the time.
CONFIGURATION = """
[mypy]
ignore_missing_imports = True
[mypy-scipy.*,pyarrow.*,ray.*,sklearn.*,pydantic.*,dp_accounting.*,threadpoolctl.*,cloudpickle.*,numba.*,llvmlite.*]
follow_imports = skip
follow_imports_for_stubs = True
"""


def extensions() -> list[Any]:
    """Compile the modules from a copy that has the package's own name, where mypyc takes the names of modules from."""
    from mypyc.build import mypycify

    copy = Path("build", "compiled")
    for folder in (copy, *Path("build").glob("lib.*")):  # else setuptools would install what it built before
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree("fedbo", copy / "fedbo", ignore=shutil.ignore_patterns("__pycache__", "examples"))
    (copy / "fedbo" / "__init__.py").write_text("")  # its own imports everything
    (copy / "mypy.ini").write_text(CONFIGURATION)
    modules = [str(copy / "fedbo" / "coordinator" / f"{module}.py") for module in COMPILED]
    return list(mypycify(["--config-file", str(copy / "mypy.ini"), *modules], opt_level="2", target_dir=str(copy / "c")))


compiles = os.environ.get("FEDBO_COMPILE") == "1"
if compiles and "editable_wheel" in sys.argv:
    sys.exit("FEDBO_COMPILE=1 is not for editable installs, where an edited module would go on as it was; leave out -e")
setup(ext_modules=extensions() if compiles and "bdist_wheel" in sys.argv else [])
