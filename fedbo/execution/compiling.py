"""Compiles all routines, so that no first decision waits for it: `python -m fedbo.execution.compiling`, in two processes."""

import subprocess
import sys

if __name__ == "__main__":  # the halves have hardly any routine in common
    half = "import fedbo.surrogates.compiled.fit, fedbo.surrogates.compiled.search, fedbo.surrogates.compiled.values"
    # What it would report, this process meets again below.
    other = subprocess.Popen([sys.executable, "-c", half], stderr=subprocess.DEVNULL)

import fedbo.surrogates.compiled.block
import fedbo.surrogates.compiled.distance
import fedbo.surrogates.compiled.draws
import fedbo.surrogates.compiled.learned
import fedbo.surrogates.compiled.maximise
import fedbo.surrogates.compiled.philox  # noqa: E402

if __name__ == "__main__":
    other.wait()

import fedbo.surrogates.compiled.fit
import fedbo.surrogates.compiled.search
import fedbo.surrogates.compiled.values  # noqa: E402, F401
from fedbo.settings.rooms import optional  # noqa: E402

if (compile_more := optional("compile_routines")) is not None:
    compile_more()
