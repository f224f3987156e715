"""Typed search spaces: integers, categories, conditions and forbidden clauses, and their declaration by ConfigSpace."""
