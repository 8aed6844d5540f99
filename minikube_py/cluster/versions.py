"""The packages whose versions a history in virtual time depends on."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from minikube_py import __version__

ALWAYS: Final = ("numpy", "orjson")
"""Of scores, and of the bytes of objects."""
OF_PROGRAMS: Final = (
    "aiohttp", "anyio", "httpx", "httpx2", "kopf", "kubernetes", "kubernetes_asyncio", "lightkube", "urllib3",
)  # fmt: skip
"""How many turns of the loop they take is part of the order of events, and what they send of the objects."""


def versions(programs: bool = False) -> dict[str, str]:
    """`programs`: also of the loaded packages that they use."""
    found = {"minikube_py": __version__}
    for name in (*ALWAYS, *(each for each in OF_PROGRAMS if programs and each in sys.modules)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "of unknown version"
    return found


def versions_told(of: dict[str, str]) -> str:
    return ", ".join(f"{name} {each}" for name, each in of.items())
