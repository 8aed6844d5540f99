"""What documents of OpenAPI tell of operations, in short: to be recorded, and compared across both versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]
Told = dict[str, list[Any]]
"""By method and path: operationId, action, parameters, what is read, what is written; lists are sorted."""


def version_2(document: Json) -> Told:
    def one(item: Json, operation: Json) -> list[Any]:
        told = (*item.get("parameters", ()), *operation.get("parameters", ()))
        parameters = (resolved(document, each) for each in told)
        named = sorted(f"{each['in']} {each['name']}: {each['type']}" for each in parameters if each["in"] != "body")
        return [named, sorted(operation.get("consumes", ())), sorted(operation["produces"])]

    return {name: [*_head(each), *one(item, each)] for name, item, each in _operations(document)}


def version_3(documents: Iterable[Json]) -> Told:
    """Version 3 says what is read of bodies alone."""

    def one(item: Json, operation: Json) -> list[Any]:
        parameters = (*item.get("parameters", ()), *operation.get("parameters", ()))
        named = sorted(f"{each['in']} {each['name']}: {each['schema']['type']}" for each in parameters)
        written = sorted(operation["responses"]["200"].get("content", ()))
        return [named, sorted(operation.get("requestBody", {}).get("content", ())), written]

    found = (each for document in documents for each in _operations(document))
    return {name: [*_head(each), *one(item, each)] for name, item, each in found}


def _operations(document: Json) -> Iterator[tuple[str, Json, Json]]:
    for path, item in document["paths"].items():
        yield from ((f"{method} {path}", item, each) for method, each in item.items() if method != "parameters")


def _head(operation: Json) -> list[Any]:
    return [operation["operationId"], operation.get("x-kubernetes-action", "")]


def resolved(document: Json, parameter: Json) -> Json:
    """A parameter of version 2 that may be a reference."""
    name = parameter.get("$ref", "").removeprefix("#/parameters/")
    found: Json = document["parameters"][name] if name else parameter
    return found


def packed(operations: Told, documents: dict[str, Json]) -> Json:
    """For a file: equal lists once; and the paths of each document of version 3."""
    lists: list[list[str]] = []
    found: Json = {}
    for name, entry in sorted(operations.items()):
        lists += [each for each in entry[2:] if each not in lists]
        found[name] = " ".join([*entry[:2], *(str(lists.index(each)) for each in entry[2:])])
    paths = {name: sorted(told["paths"]) for name, told in documents.items()}
    return {"lists": lists, "operations": found, "documents": paths}


def unpacked(recorded: Json) -> Told:
    def one(entry: str) -> list[Any]:
        first, action, *numbers = entry.split(" ")
        return [first, action, *(recorded["lists"][int(each)] for each in numbers)]

    return {name: one(entry) for name, entry in recorded["operations"].items()}
