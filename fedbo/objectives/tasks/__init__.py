"""Published hyperparameter-tuning tasks: surrogate networks, complete tables and GPU kernels, with their data."""
