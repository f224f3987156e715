"""Suites: named, versioned lists of tasks, which methods are compared on."""
