"""Central differential privacy: the private aggregator, its noise, the accountants, and the ledger of releases."""
