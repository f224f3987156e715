"""Tables of evaluations and the surfaces through them: what the objective `tabulated` reads."""
