"""Tests of this repository on random whole studies: hostings, kills, forks, extensions, power cuts and a failing Ray."""

import sys
from pathlib import Path

# The plug-in `fedbo_hunt`, which draws the surroundings of studies too and makes a failing study small, need not be installed.
sys.path.append(str(Path(__file__).parents[2] / "plugins" / "hunt"))
