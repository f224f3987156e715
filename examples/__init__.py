"""Studies that come with the package: `fedbo examples`."""
