"""Laws of the tables of any study, one subject a module."""
