"""Idle agents to whom nothing happens until a round looks at them, and the times of absences and faults as they pass."""
