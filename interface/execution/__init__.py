"""How a study is run, resumed, watched and replayed: jobs, worker processes, the run directory, the cluster."""
