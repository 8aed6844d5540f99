"""Reads stored values by their kind; unreadable ones are omitted and reported.

Others may write past the API: etcd clients, tools, earlier releases. Upstream decodes values by type, drops unknown
fields and adds required ones; so does this. Where upstream fails a whole list, the object is omitted here with a
warning. This server's own values are not checked again.

Source: apiserver `pkg/storage/etcd3` (decode), apimachinery `pkg/runtime/serializer` (defaults of what is decoded).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import orjson

from minikube_py.api.decode import decode_value, metadata_of, target_of
from minikube_py.api.errors import StatusError, internal
from minikube_py.api.kind import Kind
from minikube_py.api.typed import DecodeError
from minikube_py.apiserver.options import UNREAD
from minikube_py.apiserver.preparing import encode
from minikube_py.mvcc.types import KeyValue

log = logging.getLogger(__name__)
STORED_FORM: Final = b'{"metadata":{'
_OWN_BYTES_MAX: Final = 16 << 20
_NAMED_MAX: Final = 5
WRONG: Final = (DecodeError, StatusError, ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""Errors of decoding any bytes."""


class Reading:
    """`standing(key)`: a key's kind (None: not an object) and the last object read there.

    `why` has the reason for each omitted key."""

    def __init__(self, standing: Callable[[bytes], tuple[Kind | None, KeyValue | None]]) -> None:
        self._standing = standing
        self._own: dict[bytes, bytes] = {}
        self._own_bytes = 0
        self.why: dict[bytes, str] = {}

    def wrote(self, key: bytes, value: bytes) -> None:
        """Records that this server made the value for the key."""
        replaced = self._own.pop(key, b"")
        self._own[key] = value
        self._own_bytes += len(value) - len(replaced)
        while self._own_bytes > _OWN_BYTES_MAX:
            self._pop(next(iter(self._own)))

    def shows(self, key: bytes, value: bytes) -> bool:
        """Whether it shows the value as it is stored, so that it need not be checked when it is written again."""
        _, known = self._standing(key)
        return known is not None and known.value == value

    def _pop(self, key: bytes) -> bytes | None:
        value = self._own.pop(key, None)
        self._own_bytes -= len(value or b"")
        return value

    def is_own(self, kv: KeyValue) -> bool:
        """Whether this server made the value, so that it need not be checked."""
        if self._own.get(kv.key) != kv.value:
            return False
        del self._own[kv.key]
        self._own_bytes -= len(kv.value)
        if self.why:
            self.why.pop(kv.key, None)
        return True

    def take(self, kind: Kind, kv: KeyValue, gone: bool = False) -> KeyValue | None:
        """The object of an event; None if it is `gone` or omitted."""
        if gone:
            self.why.pop(kv.key, None)
            return None
        if self.is_own(kv):
            return kv
        self._pop(kv.key)
        try:
            kv = as_kind(kind, kv)
        except WRONG as error:
            self.leave_out(kv.key, error)
            return None
        if self.why:
            self.why.pop(kv.key, None)
        return kv

    def of(self, kv: KeyValue) -> KeyValue:
        """A value read from the store. Raises: StatusError 500 if unreadable."""
        found = self.maybe(kv)
        if found is None:
            raise self._refusal(kv.key)
        return found

    def maybe(self, kv: KeyValue) -> KeyValue | None:
        kind, known = self._standing(kv.key)
        if kind is None or self._own.get(kv.key) == kv.value:
            return kv
        if known is not None and known.mod_revision == kv.mod_revision:
            return kv if known.value == kv.value else kv._replace(value=known.value)
        return self.take(kind, kv)

    def check(self, key: bytes) -> None:
        """Raises: StatusError 500 if the key's value was omitted."""
        if key in self.why:
            raise self._refusal(key)

    def warning(self, prefix: bytes) -> str:
        """The warning for a list's omitted objects, or ""."""
        names = [key[len(prefix) :].decode(errors="replace") for key in self.why if key.startswith(prefix)]
        if not names:
            return ""
        shown = ", ".join(sorted(names)[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")
        return f"{len(names)} stored objects cannot be read and are skipped: {shown}"

    def _refusal(self, key: bytes) -> StatusError:
        what = f"what is stored under {key.decode(errors='replace')} cannot be read"
        return internal(f"{what}, and can be deleted only with {UNREAD}: {self.why[key]}")

    def leave_out(self, key: bytes, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if self.why.get(key) != reason:
            self.why[key] = reason
            log.error("%s cannot be read, and is skipped until it changes: %s", key.decode(errors="replace"), reason)


def as_kind(kind: Kind, kv: KeyValue) -> KeyValue:
    """The object decoded by the kind's type, with defaults. Raises: one of WRONG."""
    if not kv.value.startswith(STORED_FORM):
        raise ValueError("it is not in the form in which objects are stored")
    obj = orjson.loads(kv.value)
    metadata = obj["metadata"]
    metadata.pop("resourceVersion", None)
    if kind.codec is not None:
        obj["metadata"] = metadata = metadata_of(metadata)[0]
    else:
        obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
        obj, _ = decode_value(target_of(kind), obj, False)
        kind.default(obj)
        metadata = obj["metadata"]
        del obj["kind"], obj["apiVersion"]
    if kind.key(metadata.get("namespace", ""), metadata.get("name", "")) != kv.key:
        raise ValueError(f"it is called {metadata.get('namespace', '')}/{metadata.get('name', '')}")
    if not metadata.get("uid"):
        raise ValueError("it has no uid")
    if orjson.dumps(obj) == kv.value:
        return kv
    version = obj.get("apiVersion") if kind.codec is not None else None
    value = encode(obj)
    if isinstance(version, str):
        from minikube_py.api.custom.conversion import with_version

        value = with_version(value, version)
    return kv if value == kv.value else kv._replace(value=value)
