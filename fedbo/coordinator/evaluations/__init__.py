"""Evaluations that the coordinator schedules one by one in virtual time, since an agent may have several pending at once."""
