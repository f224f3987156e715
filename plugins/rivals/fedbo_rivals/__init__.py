"""Methods of other papers that collaborate by proposals, sums, hyperparameters or pooled evaluations: a plug-in of fedbo."""
