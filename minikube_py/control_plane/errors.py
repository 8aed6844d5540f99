"""Errors before or while roles are assembled; each text is one line: what, where, what to do."""

from __future__ import annotations

from minikube_py.errors import MinikubeError


class SetupError(MinikubeError):
    """A problem the user can fix: a busy port, a folder in use, a foreign file."""


class RoleFailed(MinikubeError):
    """A role ended or did not become ready. `code`: its exit code, None if it did not exit by itself."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Dismissed(MinikubeError):
    """This store member was removed from its cluster: do not restart it as it is."""
