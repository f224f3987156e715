"""Tests of this repository on random whole studies: hostings, kills, forks, extensions, power cuts and a failing Ray."""
