"""Manifests of papers, and their studies: `fedbo reproduce`."""
