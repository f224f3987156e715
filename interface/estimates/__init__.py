"""What a study will cost, and what privacy it will have spent in the end, estimated before it runs."""
