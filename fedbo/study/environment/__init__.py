"""The environment of a study: its tables, their checks, and the models that they build."""
