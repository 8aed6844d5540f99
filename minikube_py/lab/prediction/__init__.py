"""Usage and prediction: real days, generated ones, and what a scheduler makes of predictions."""
