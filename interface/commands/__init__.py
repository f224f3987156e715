"""The commands of the command line; `fedbo.cli` puts them together."""
