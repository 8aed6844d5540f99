"""CEL as in Kubernetes: `environment.compile(expression, environment)` parses, checks and estimates the cost."""

from minikube_py.cel.values import EvaluationError as EvaluationError
