"""What defaults of several kinds share."""

from __future__ import annotations

from minikube_py.api.errors import Json


def part(obj: Json, name: str) -> Json:
    """`obj[name]`, made empty where it is missing or null."""
    found: Json | None = obj.get(name)
    if found is None:
        found = obj[name] = {}
    return found
