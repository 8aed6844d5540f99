"""What can go wrong before or while roles are put together; each text is one line: what, where, what to do."""

from __future__ import annotations

from minikube_py.errors import MinikubeError


class SetupError(MinikubeError):
    """Something the user can put right: a busy port, a folder in use, a file that is not ours."""


class RoleFailed(MinikubeError):
    """A role ended or did not become ready. `code`: its exit code, None where it did not end by itself."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Dismissed(MinikubeError):
    """This store member was removed from its cluster: it is not to be started again as it is."""
