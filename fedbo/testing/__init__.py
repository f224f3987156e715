"""For authors of plug-ins: contracts, algorithms in lock-step, random complete studies, and laws for their tables."""
