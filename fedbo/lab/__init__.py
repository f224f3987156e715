"""Studies of studies: forks, twins, benchmarks, tables of objectives, and published results."""
