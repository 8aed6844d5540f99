"""YAML with the line of each value, for error messages. As in `api.yaml_text`, aliases count at each use, and recursive
aliases are rejected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from minikube_py.api.yaml_text import YamlError, resolve
from minikube_py.stages.errors import StageRefused

BYTES_MAX: Final = 4 << 20
NODES_MAX: Final = 200_000
DEPTH_MAX: Final = 100
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Located:
    """`value`: a dict of Located, a list of them, or a scalar. `text_line`: where a scalar's text begins."""

    value: Any
    line: int
    text_line: int = 0

    @property
    def plain(self) -> Any:
        if isinstance(self.value, dict):
            return {key: each.plain for key, each in self.value.items()}
        return [each.plain for each in self.value] if isinstance(self.value, list) else self.value


def documents(data: bytes, name: str) -> list[Located]:
    """All of a file. Raises: StageRefused."""
    if len(data) > BYTES_MAX:
        raise StageRefused(f"{name}:1: larger than {BYTES_MAX:,} bytes")
    loader = None
    try:
        loader = _Loader(data)
        return list(_Reader(loader, name).documents())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise StageRefused(f"{name}:{mark.line + 1 if mark else 1}: no YAML: {problem}") from None
    except UnicodeDecodeError as error:
        raise StageRefused(f"{name}:1: no YAML: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    def __init__(self, loader: Any, name: str) -> None:
        self._next = loader.get_event
        self._name = name
        self._count = 0
        self._anchors: dict[str, tuple[Located, int]] = {}
        self._open: set[str] = set()

    def documents(self) -> Iterator[Located]:
        self._next()
        while not isinstance(self._next(), yaml.StreamEndEvent):
            self._anchors, self._open = {}, set()
            yield self._value(self._next(), 0)
            self._next()

    def _refused(self, event: Any, why: str) -> StageRefused:
        return StageRefused(f"{self._name}:{event.start_mark.line + 1}: {why}")

    def _value(self, event: Any, depth: int) -> Located:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._count
        self._enter(event, 1)
        if depth > DEPTH_MAX:
            raise self._refused(event, f"nested deeper than {DEPTH_MAX} levels")
        anchor = event.anchor
        if anchor is not None:
            self._open.add(anchor)
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            found = Located(self._scalar(event), line, line + (event.style in ("|", ">")))
        elif isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(each := self._next(), yaml.SequenceEndEvent):
                items.append(self._value(each, depth + 1))
            found = Located(items, line)
        else:
            found = Located(self._mapping(depth), line)
        if anchor is not None:
            self._open.discard(anchor)
            self._anchors[anchor] = found, self._count - before
        return found

    def _enter(self, event: Any, nodes: int) -> None:
        self._count += nodes
        if self._count > NODES_MAX:
            raise self._refused(event, f"more than {NODES_MAX:,} values, those that aliases stand for counted")

    def _alias(self, event: Any) -> Located:
        if event.anchor in self._open:
            raise self._refused(event, f"the anchor {event.anchor!r} holds itself")
        if event.anchor not in self._anchors:
            raise self._refused(event, f"there is no anchor {event.anchor!r}")
        found, nodes = self._anchors[event.anchor]
        self._enter(event, nodes)
        return found

    def _mapping(self, depth: int) -> dict[str, Located]:
        found: dict[str, Located] = {}
        merged: dict[str, Located] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._value(event, depth + 1).value
            value = self._value(self._next(), depth + 1)
            if not isinstance(key, str):
                raise self._refused(event, f"a key that is no text: {key!r:.50}")
            if key == "<<" and isinstance(event, yaml.ScalarEvent) and not event.style:
                sources = value.value if isinstance(value.value, list) else [value]
                for source in reversed(sources):
                    if not isinstance(source.value, dict):
                        raise self._refused(event, "<< takes mappings")
                    merged.update(source.value)
                continue
            if key in found:
                raise self._refused(event, f"the key {key!r} is written twice")
            found[key] = value
        return {**merged, **found}

    def _scalar(self, event: Any) -> Any:
        if event.style or event.tag == "tag:yaml.org,2002:str" or event.tag == "!":
            return event.value
        if event.tag is not None and not event.tag.startswith("tag:yaml.org,2002:"):
            raise self._refused(event, f"the tag {event.tag} is not understood")
        try:
            return resolve(event.value)
        except YamlError as error:
            raise self._refused(event, str(error)) from None
