"""Manifests as objects, and the patch that makes a stored object match its manifest, as `kubectl apply` does. Pure.

Source: kubernetes.io/docs/tasks/manage-kubernetes-objects/declarative-config ("How apply calculates differences")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.api.yaml_text import documents
from minikube_py.cluster.arguments import Manifests, shown
from minikube_py.cluster.errors import ClusterError
from minikube_py.env import read_file

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
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
    import yaml

    try:
        found = [each for each in documents(text.encode()) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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
    metadata = found.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(
        isinstance(metadata.get(name) or "", str) for name in ("name", "namespace", "generateName")
    ):
        raise ClusterError(f"{about}: metadata has texts for name and namespace")
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict):
        raise ClusterError(f"{about}: metadata.annotations is a mapping of texts")
    return found


def with_last_applied(manifest: Object) -> Object:
    """The manifest with itself recorded, so that the next apply knows what to remove."""
    metadata = dict(manifest.get("metadata") or {})
    annotations = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    bare = {**manifest, "metadata": {**metadata, "annotations": annotations} if annotations else metadata}
    metadata["annotations"] = {**annotations, LAST_APPLIED: orjson.dumps(bare).decode() + "\n"}
    return {**manifest, "metadata": metadata}


def patch_for(manifest: Object, stored: Mapping[str, Any]) -> Object:
    """A strategic merge patch: sets all of the manifest, and removes what was only in the last applied one."""
    wanted = with_last_applied(manifest)
    text = ((stored.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        before = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        before = {}
    merged: Object = _with_removals(wanted, before if isinstance(before, dict) else {})
    return merged


def _with_removals(wanted: Any, before: Any) -> Any:
    if isinstance(wanted, Mapping) and isinstance(before, Mapping):
        gone = {name: None for name in before if name not in wanted}
        return {**{name: _with_removals(value, before.get(name)) for name, value in wanted.items()}, **gone}
    if isinstance(wanted, list) and isinstance(before, list) and _named(wanted) and _named(before):
        old = {each["name"]: each for each in before}
        kept = [_with_removals(each, old.pop(each["name"], None)) for each in wanted]
        return [*kept, *({"$patch": "delete", "name": name} for name in old)]
    return wanted


def _named(items: list[Any]) -> bool:
    """Lists of strategic merge have a key; nearly always the name."""
    return bool(items) and all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in items)
