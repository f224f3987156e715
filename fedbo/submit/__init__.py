"""Running a study in jobs that end early: a script for SLURM or this machine, and what each of its jobs does."""
