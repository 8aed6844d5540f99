"""A whole Kubernetes control plane in pure Python, with range-query indexes inside its store."""

__version__ = "0.1.0"
