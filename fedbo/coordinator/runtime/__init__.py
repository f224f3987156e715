"""The drivers of the core: the event queue in virtual time, the wall clock, the process on Ray, snapshots and the event log."""
