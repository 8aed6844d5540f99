"""Conformance checks of scheduler plugins: `minikube-py plugin check`."""
