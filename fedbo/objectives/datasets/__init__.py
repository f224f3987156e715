"""Public data sets: which there are, how they are found, fetched and checked, and the features made of them."""
