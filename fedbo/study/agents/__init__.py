"""fedbo.study.agents: what the agents of a study begin with, and what each may do, where they are unequal."""
