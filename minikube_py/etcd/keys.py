"""Where this project's keys are in an etcd: under the prefix of `--etcd-prefix`.

`/registry/...` is under `PREFIX/`, declarations of indexes under `PREFIX.minikube-py/`: adjacent in key order, so one
watch covers both."""

from __future__ import annotations

from typing import Final

from minikube_py.errors import InvalidRequest

ROOT: Final = b"/registry"
OWN: Final = b"/minikube-py/"
PREFIX: Final = "/registry"


class Keys:
    """`low` and `high` bound all our keys, and possibly others' that begin with `PREFIX.`"""

    def __init__(self, prefix: str = PREFIX) -> None:
        self._prefix = b"/" + prefix.strip("/").encode()
        self.low, self.high = self._prefix + b".", self._prefix + b"0"

    def out(self, key: bytes) -> bytes:
        """A key or range end, as stored in etcd. Raises: InvalidRequest."""
        if not key:
            return b""
        if key.startswith(ROOT):
            return self._prefix + key[len(ROOT) :]
        if key.startswith(OWN[:-1]):
            return self._prefix + b"." + key[1:]
        raise InvalidRequest(f"{key!r} is no key that is kept in etcd: those begin with {ROOT.decode()}")

    def back(self, key: bytes) -> bytes:
        """Our name of a key; empty if it is not ours."""
        rest = key[len(self._prefix) :]
        if rest.startswith(b"/"):
            return ROOT + rest
        own = b"/" + rest[1:]
        return own if own.startswith(OWN) else b""
