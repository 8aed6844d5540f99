"""Prediction: what pods will use at most, by predictors that can be exchanged, and plugins that place pods by it."""

from minikube_py.scheduler.prediction.predictor import Past, Predictor

__all__ = ["Past", "Predictor"]
