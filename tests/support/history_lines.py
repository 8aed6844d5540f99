"""Histories as `sim.replay --history` writes them, read again: nothing that a checker needs is lost in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from typing import Any

from minikube_py.errors import MinikubeError
from minikube_py.fields import spec
from minikube_py.fields import where as wheres
from minikube_py.mvcc import types
from minikube_py.sim.history import ERRORS, Delivery, History, KeepAlive, Operation, Watch, WatchPart


def read_lines(lines: Iterable[str]) -> History:
    """The inverse of `write_lines`. Raises: ValueError for a line that is no record."""
    history = History()
    for line in lines:
        record = from_json(json.loads(line))
        if isinstance(record, Operation):
            history.operations.append(record)
        elif isinstance(record, Watch):
            history.watches.append(record)
        else:
            raise ValueError(f"neither an operation nor a watch: {line[:80]}")
    return history


def _record_types(*modules: Any) -> Iterator[type]:
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, type) and (is_dataclass(value) or hasattr(value, "_fields")):
                yield value


_RECORDS = {kind.__name__: kind for kind in _record_types(types, spec, wheres)}
_RECORDS |= {kind.__name__: kind for kind in (KeepAlive, Operation, Delivery, WatchPart, Watch)}

_LISTS = {("RangeResult", "kvs"), ("RangeResult", "fields"), ("WatchPart", "deliveries"), ("Watch", "parts")}


def from_json(value: Any) -> Any:
    """Raises: ValueError for a record of an unknown kind."""
    if isinstance(value, list):
        return tuple(map(from_json, value))
    if not isinstance(value, dict):
        return value
    if "b" in value:
        return value["b"].encode("utf-8", "surrogateescape")
    if "map" in value:
        return {from_json(key): from_json(item) for key, item in value["map"]}
    if "raised" in value:
        return _error(value)
    kind = _RECORDS.get(value.get("is", ""))
    if kind is None:
        raise ValueError(f"no record is called {value.get('is')!r}")
    given = {name: from_json(item) for name, item in value.items() if name != "is"}
    for name in given:
        if (kind.__name__, name) in _LISTS and given[name] is not None:
            given[name] = list(given[name])
    return kind(**given)


def _error(value: dict[str, Any]) -> MinikubeError:
    kind = ERRORS.get(value["raised"], MinikubeError)
    error = kind.__new__(kind)
    Exception.__init__(error, value["text"])
    for name, item in value.items():
        if name not in ("raised", "text"):
            setattr(error, name, item)
    return error
