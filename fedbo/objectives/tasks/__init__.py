"""Published hyperparameter-tuning tasks: surrogate networks and complete tables, read from their publishers' files."""
