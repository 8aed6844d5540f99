"""What the public door raises, beside StatusError for what the API server refuses."""

from __future__ import annotations

from minikube_py.errors import MinikubeError


class ClusterError(MinikubeError):
    """Something cannot be done with this cluster; the text says what and why."""


class WaitTimeout(ClusterError, TimeoutError):
    """What was waited for did not come; the text says what was seen last."""
