"""Whether federation pays in a study: methods with and without it, controls and a bound on the same draws."""
