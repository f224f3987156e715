"""Differential privacy: the aggregator, noise, masks, accountants and ledger; their table of a study, command and report."""
