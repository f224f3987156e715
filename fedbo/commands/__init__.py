"""The commands of the command line, which `fedbo.cli` registers."""
