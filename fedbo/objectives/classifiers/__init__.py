"""Classifiers tuned on images, recordings and land mines, with their data sets."""
