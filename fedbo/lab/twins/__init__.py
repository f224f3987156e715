"""Worlds from measurements: models fitted to a run or a log, and a run rebuilt from them in virtual time."""
