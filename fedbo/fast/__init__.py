"""Windows and columns, which run what is plain of a run faster, with equal results; see `room.py`."""
