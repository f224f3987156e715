"""Laws for the tables of any study, one subject per module."""
