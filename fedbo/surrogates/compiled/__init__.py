"""Compiled arithmetic of one agent's decision: loops over arrays of that agent alone, so that no neighbour can change a bit.

Each routine has a NumPy reference, against which it is tested. Numba compiles without fast-math and without threads: sums are
made in the order in which they are written, on every processor. Sines, cosines and exponentials are written out as well, so
that they are the same numbers everywhere, and several at once. These modules are imported where they are called, since Numba
takes half a second to import.
"""
