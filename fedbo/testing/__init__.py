"""For authors of plug-ins: contracts, algorithms in lock-step, random whole studies, and the laws that their tables obey."""
