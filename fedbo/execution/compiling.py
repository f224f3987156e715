"""Compiles all routines, so that no first decision waits for it: `python -m fedbo.execution.compiling`."""

import fedbo.surrogates.compiled.block
import fedbo.surrogates.compiled.distance
import fedbo.surrogates.compiled.draws
import fedbo.surrogates.compiled.fit
import fedbo.surrogates.compiled.maximise
import fedbo.surrogates.compiled.philox
import fedbo.surrogates.compiled.search
import fedbo.surrogates.compiled.values  # noqa: F401
from fedbo.settings.rooms import optional

if (compile_more := optional("compile_routines")) is not None:
    compile_more()
