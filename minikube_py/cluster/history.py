"""The digest of a history: two runs with the same digest made the same changes, at the same moments, to the byte."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import FROM_KEY, Event
from minikube_py.store.storage import Storage, WatchBatch, WatchHandle

HEAD: Final = struct.Struct(">QQBII")
DELETED: Final = 0
PUT: Final = 1

Told = Callable[[int, Event], None]
"""Called with each change and the virtual time in nanoseconds."""


class HistoryDigest:
    """SHA-256 over the changes of all keys, in order of revision, each as the big-endian virtual time in nanoseconds (8
    bytes), revision (8), 1 for a put and 0 for a deletion (1), length of key and value (4 each), key, value.

    It watches the store from the first revision. `on_change` is also called with each change. `name`: of a mode that
    omits something; the digest starts with it."""

    def __init__(self, now_ns: Callable[[], int], on_change: Told | None = None) -> None:
        self.revision = 0
        self.changes = 0
        self.on_change = on_change
        self._now_ns = now_ns
        self._sum = hashlib.sha256()
        self._watch: WatchHandle | None = None
        self._error: MinikubeError | None = None

    def follow(self, storage: Storage, name: str = "") -> None:
        """Call it before anything is written: earlier changes would be reported late."""
        self._sum.update(name.encode())
        self._watch = storage.watch(b"\0", FROM_KEY, 1, self._take)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def hexdigest(self) -> str:
        """Of all changes so far. Raises: MinikubeError if the watch failed, and changes are missing."""
        if self._error is not None:
            raise self._error
        return self._sum.hexdigest()

    def _take(self, batch: WatchBatch) -> None:
        if batch.error is not None:
            self._error = batch.error
            return
        self._add(self._now_ns(), batch.events)
        self.revision = batch.revision

    def _add(self, now_ns: int, events: Sequence[Event]) -> None:
        parts: list[bytes] = []
        for event in events:
            kv = event.kv
            put = PUT if event.type == "PUT" else DELETED
            parts += (HEAD.pack(now_ns, kv.mod_revision, put, len(kv.key), len(kv.value)), kv.key, kv.value)
            if self.on_change is not None:
                self.on_change(now_ns, event)
        self._sum.update(b"".join(parts))
        self.changes += len(events)
