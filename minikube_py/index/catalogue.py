"""The structures there are, by name: the family of this package, and those that others install.

A distribution adds its own by an entry point of the group `minikube_py.structures`, whose name is the structure's:

    [project.entry-points."minikube_py.structures"]
    mine = "mine:MyIndex"

Nothing is imported before it is asked for. A name of the family cannot be taken by another.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from minikube_py.errors import InvalidRequest
from minikube_py.index.structure import Structure

GROUP: Final = "minikube_py.structures"

FAMILY: Final[Mapping[str, str]] = {
    "scan": "scan:Scan",
    "columns": "columns:Columns",
    "sorted-runs": "sorted_runs:SortedRuns",
    "max-tree": "max_tree:MaxTree",
    "cow-max-tree": "cow_max_tree:CowMaxTree",
    "kd-tree": "kd_tree:KdTree",
    "bitmaps": "bitmaps:Bitmaps",
    "zones": "zones:Zones",
    "joint-zones": "joint_zones:JointZones",
    "shapes": "shapes:Shapes",
    "sharded": "sharded:Sharded",
}
"""Name to module and class, in the order in which a report lists them."""

Options = Mapping[str, int | str]


class Catalogue(Mapping[str, type[Structure]]):
    """Name to class; a class is imported when it is first asked for."""

    def __getitem__(self, name: str) -> type[Structure]:
        """Raises: KeyError for a name that is not there, and whatever importing it raises."""
        place = FAMILY.get(name)
        if place is None:
            loaded: type[Structure] = _installed()[name].load()
            return loaded
        module, _, class_name = place.partition(":")
        found: type[Structure] = getattr(import_module(f"minikube_py.index.structures.{module}"), class_name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from FAMILY
        yield from _installed()

    def __len__(self) -> int:
        return len(FAMILY) + len(_installed())


STRUCTURES: Final = Catalogue()


@cache
def _installed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in FAMILY}


def options_of(name: str) -> dict[str, int | str]:
    """The options of a structure and their defaults.

    Raises: InvalidRequest for a name that is not there, or an option whose default is no whole number and no text."""
    options = {}
    for parameter in list(inspect.signature(_named(name)).parameters.values())[1:]:
        if type(parameter.default) not in (int, str):
            raise InvalidRequest(f"structure {name}: {parameter.name} needs a default, a whole number or a text")
        options[parameter.name] = parameter.default
    return options


def build(name: str, dimensions: int, options: Options) -> Structure:
    """An empty structure.

    Raises: InvalidRequest for a name or an option that is not there, or a value that an option does not take."""
    structure: Any = _named(name)
    defaults = options_of(name)
    for option, value in options.items():
        if option not in defaults:
            known = ", ".join(f"{known} (default {default!r})" for known, default in defaults.items())
            raise InvalidRequest(f"structure {name} has no option {option!r}; it has {known or 'none'}")
        if type(value) is not type(defaults[option]):
            wanted = "a whole number" if isinstance(defaults[option], int) else "a text"
            raise InvalidRequest(f"structure {name}: {option} is {value!r}; it takes {wanted}")
    built: Structure = structure(dimensions, **options)
    return built


def _named(name: str) -> type[Structure]:
    if name not in FAMILY and name not in _installed():
        raise InvalidRequest(f"no structure is named {name!r}; there are {', '.join(STRUCTURES)}")
    return STRUCTURES[name]
