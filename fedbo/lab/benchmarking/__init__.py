"""Benchmarks: methods on the tasks of a suite, or of a folder of studies, run one after another and compared."""
