"""Manifests of papers, and their studies: `fedbo reproduce` of the plug-in fedbo-papers."""
