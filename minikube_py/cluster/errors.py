"""Exceptions of the public API, in addition to StatusError for refusals of the API server."""

from __future__ import annotations

from typing import Final

from minikube_py.errors import MinikubeError, WrongUsage

STOPPED: Final = "the cluster was stopped"


class ClusterError(MinikubeError):
    """An operation is impossible with this cluster; the text says what and why."""


class WrongMoment(ClusterError, WrongUsage):
    """No moment of a history is written so."""


class WaitTimeout(ClusterError, TimeoutError):
    """The awaited condition did not hold in time; the text says what was seen last."""
