"""Prediction of pods' peak usage by exchangeable predictors, and plugins that place pods by it."""

from minikube_py.scheduler.prediction.predictor import Past, Predictor

__all__ = ["Past", "Predictor"]
