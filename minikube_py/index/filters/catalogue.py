"""All filters and summaries by name, imported on first use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, cast

from minikube_py import own_code
from minikube_py.errors import InvalidRequest
from minikube_py.index.filters.contract import RangeFilter, Summary
from minikube_py.index.filters.per_dimension import per_dimension
from minikube_py.index.structure import IntArray

FILTERS: Final[Mapping[str, str]] = {
    **own_code.plugged("filters"),
    "oracle": "minikube_py.index.filters.oracle:OracleKeys",
    "always": "minikube_py.index.filters.always:AlwaysKeys",
}
"""Range filters: name to module and class. A name that is also a summary means the summary in front of a shard."""

SUMMARIES: Final[Mapping[str, str]] = {
    "max-vector": "minikube_py.index.filters.max_vector:MaxVector",
    "joint-bitset": "minikube_py.index.filters.joint_bitset:JointBitset",
    "oracle": "minikube_py.index.filters.oracle:Oracle",
    "always": "minikube_py.index.filters.always:Always",
}

Option = int | float | str


def names() -> list[str]:
    """All filters that can be put in front of a shard."""
    return [*SUMMARIES, *(name for name in FILTERS if name not in SUMMARIES)]


def filter_class(name: str) -> type[RangeFilter]:
    """Raises: InvalidRequest for an unknown range filter."""
    if name not in FILTERS:
        raise InvalidRequest(f'there is no range filter "{name}": there are {", ".join(FILTERS)}')
    return cast(type[RangeFilter], _load(FILTERS[name]))


def filter_of(name: str, keys: IntArray, bits_per_key: float, **options: Option) -> RangeFilter:
    """Raises: InvalidRequest for an unknown name or option."""
    build: Any = filter_class(name)
    accepted(name, build, options)
    return cast(RangeFilter, build(keys, bits_per_key=bits_per_key, **options))


def summary_of(name: str, points: IntArray, bits_per_key: float = 16, **options: Option) -> Summary:
    """A summary by its name, or one range filter for each dimension; the former ignores `bits_per_key`.

    Raises: InvalidRequest for an unknown name or option."""
    if name in SUMMARIES:
        build: Any = _load(SUMMARIES[name])
        accepted(name, build, options)
        return cast(Summary, build(points, **options))
    if name not in FILTERS:
        raise InvalidRequest(f'there is no filter "{name}": there are {", ".join(names())}')
    build = filter_class(name)
    given = dict(options)
    clip = int(given.pop("clip", 1))
    accepted(name, build, given)
    return per_dimension(points, build, clip, {"bits_per_key": bits_per_key, **given})


def accepted(name: str, build: Any, options: Mapping[str, Any]) -> None:
    """Raises: InvalidRequest for options that `build` does not accept."""
    takes = [option for option in inspect.signature(build).parameters if option not in ("keys", "points")]
    for option in options:
        if option not in takes:
            raise InvalidRequest(f'the filter "{name}" has no option "{option}": it takes {", ".join(takes) or "none"}')


def _load(place: str) -> type:
    module, _, name = place.partition(":")
    return cast(type, getattr(import_module(module), name))
