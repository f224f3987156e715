"""Shared parts of the methods on trees of boxes: trees, partitions, their search, and phased elimination of boxes."""
