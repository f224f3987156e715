"""The fork of a finished run: its trunk, its branches, and what changed."""
