"""Power cuts: a disk that forgets what was not fsynced, and studies that are cut off on it."""
