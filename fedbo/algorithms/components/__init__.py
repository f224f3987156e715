"""The parts that several methods share; each method itself is one file of the folder above."""
