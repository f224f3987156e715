"""The report of runs: one HTML file that needs no server, no network and no script."""
