"""What a command imports: nothing of a room that only others use."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_imports_nothing_of_sites() -> None:
    code = "import sys, fedbo.cli; print([name for name in sys.modules if name.startswith('fedbo.sites')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
