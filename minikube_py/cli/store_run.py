"""Run one store member: the same as `minikube-py store` without a command."""

from __future__ import annotations

from minikube_py.cli.store import configure, run

__all__ = ["configure", "run"]
