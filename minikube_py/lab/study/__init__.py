"""Registered experiments: `minikube-py lab study`."""
