"""Transfer: an agent decides by the models, or the ranked observations, that other agents send."""
