"""Usage and prediction: real days, generated ones, and the scheduling results of predictors."""
