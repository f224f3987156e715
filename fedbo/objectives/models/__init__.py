"""Models that objectives compute: test functions and their families, noise, classifiers, an epidemic."""
