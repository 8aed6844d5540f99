"""What is wrong with a stage: when it is read, with file and line; and when it is played."""

from __future__ import annotations

from minikube_py.errors import RequestError


class NotUnderstood(RequestError):
    """An expression or a template that is not understood, at a line of its own text, counted from 1."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


class StageRefused(RequestError):
    """A file that is not played; the message begins with `FILE:LINE: `."""


class StageFailed(RequestError):
    """A stage that cannot be played for this object: its template fails, or becomes too much."""
