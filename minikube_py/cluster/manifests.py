"""Manifests as objects, read as kubectl reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.yaml_text import YamlError, documents
from minikube_py.cluster.arguments import Manifests, shown
from minikube_py.cluster.errors import ClusterError
from minikube_py.env import read_file

Object = dict[str, Any]
SUFFIXES: Final = (".yaml", ".yml", ".json")


def objects_of(manifests: Manifests) -> list[Object]:
    """In order, with lists expanded. A single line that ends like a file name is a file.

    Raises: ClusterError if it is not an object, or cannot be read."""
    if isinstance(manifests, Mapping):
        return _checked([manifests])
    if isinstance(manifests, Path):
        return _of_path(manifests)
    if isinstance(manifests, str):
        if "\n" not in manifests and manifests.endswith(SUFFIXES):
            return _of_path(Path(manifests))
        return _of_text(manifests, "the text")
    return _checked(manifests)


def _of_path(path: Path) -> list[Object]:
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
        if not files:
            raise ClusterError(f"manifests: {path} holds no file that ends with {', '.join(SUFFIXES)}")
        return [obj for each in files for obj in _of_text(_text(each), str(each))]
    return _of_text(_text(path), str(path))


def _text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except OSError as error:
        raise ClusterError(f"manifests: {path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise ClusterError(f"manifests: {path} is not text: {error}") from None


def _of_text(text: str, where: str) -> list[Object]:
    try:
        found = documents(text.encode())
    except (YamlError, UnicodeEncodeError) as error:
        raise ClusterError(f"manifests: {where} is not YAML: {error}") from error
    if not found:
        raise ClusterError(f"manifests: {where} holds no object")
    return _checked(found)


def _checked(found: Iterable[Any]) -> list[Object]:
    objects: list[Object] = []
    for each in found:
        if not isinstance(each, Mapping) or not all(_is_name(each.get(name)) for name in ("kind", "apiVersion")):
            raise ClusterError(f"manifests: not an object with apiVersion and kind: {shown(each)}")
        items = each.get("items")
        if isinstance(items, list) and each["kind"].endswith("List"):
            objects += _checked(items)
        else:
            objects.append(_plain(each))
    return objects


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _plain(given: Mapping[str, Any]) -> Object:
    """The object in the form that is sent. Raises: ClusterError for values that JSON does not support."""
    about = f"manifests: {given['kind']} {shown(given.get('metadata'))}"
    try:
        # One refuses NaN, the other keys that are not texts.
        json.dumps(given, allow_nan=False)
        found: Object = orjson.loads(orjson.dumps(dict(given)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ClusterError(f"{about} cannot be written as JSON: {error}") from None
    found = _without_nulls(found)
    metadata = found.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(
        isinstance(metadata.get(name) or "", str) for name in ("name", "namespace", "generateName")
    ):
        raise ClusterError(f"{about}: metadata has texts for name and namespace")
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise ClusterError(f"{about}: metadata.annotations is a mapping of texts")
    return found


def _without_nulls(value: Any) -> Any:
    """Mappings without their null values, as kubectl creates objects."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
