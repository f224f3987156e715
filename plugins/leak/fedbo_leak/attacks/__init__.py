"""Attacks on messages, one module for each kind of what they look for."""
