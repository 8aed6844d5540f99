"""Stores and handlers like those of informers, fed by hand."""

from __future__ import annotations

from typing import Any

from minikube_py.client.store import ObjectStore


class FedKinds:
    """Replaces `LentKinds`."""

    def __init__(self) -> None:
        self.stores: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {}

    def of(self, kind: Any) -> Any:
        kinds = self

        class Informer:
            store = kinds.stores.setdefault(kind.name, ObjectStore(kind.indexers))

            def add_handler(self, handler: Any) -> None:
                kinds.handlers[kind.name] = handler

        return Informer()

    def put(self, name: str, view: Any) -> None:
        old = self.stores[name].put(view.key, view)
        handler = self.handlers[name]
        handler.on_add(view) if old is None else handler.on_update(old, view)

    def remove(self, name: str, key: str) -> None:
        old = self.stores[name].remove(key)
        if old is not None:
            self.handlers[name].on_delete(old)
