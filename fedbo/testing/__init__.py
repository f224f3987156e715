"""For authors of plug-ins: the contracts of each group, and methods run in lock-step."""
