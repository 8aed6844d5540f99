"""Errors of stages: on load, with file and line, and at run time."""

from __future__ import annotations

from minikube_py.errors import RequestError


class NotUnderstood(RequestError):
    """An unsupported expression or template, with a 1-based line in its text."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class StageRefused(RequestError):
    """A rejected file; the message begins with `FILE:LINE: `."""


class StageFailed(RequestError):
    """A stage failed for this object: its template has an error or exceeds a limit."""
