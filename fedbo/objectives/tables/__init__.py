"""Tables of evaluations and the surfaces through them, for the objective `tabulated`."""
