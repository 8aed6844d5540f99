"""The modules of the store's packages, for tests of their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import minikube_py

PACKAGES = ("raft", "wal", "mvcc", "store")


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Each by its name, as "raft/log"."""
    for package in PACKAGES:
        for file in sorted((Path(minikube_py.__file__).parent / package).glob("*.py")):
            if file.stem != "__init__":
                yield f"{package}/{file.stem}", import_module(f"minikube_py.{package}.{file.stem}")
