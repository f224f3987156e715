"""The methods of the field that collaborate by points, scores, hyperparameters or sums."""
