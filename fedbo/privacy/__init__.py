"""Differential privacy: the aggregator, noise, masks, accountants and ledger, and what a user sees of them."""
