"""The available structures, by name: those of this package, those of a study, those of installed distributions, and
those named as `FILE.py:CLASS` or `MODULE:CLASS` at the start of this process.

A distribution adds its own by an entry point of the group `minikube_py.structures`, whose name is the structure's:

    [project.entry-points."minikube_py.structures"]
    mine = "mine:MyIndex"

Structures are imported on first use. A name of this package cannot be taken by another."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py import own_code
from minikube_py.errors import InvalidRequest
from minikube_py.index.structure import Structure

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "minikube_py.structures"
_PACKAGE: Final = "minikube_py.index.structures"

FAMILY: Final[Mapping[str, str]] = {
    "scan": "scan:Scan",
    "columns": "columns:Columns",
    "sorted-runs": "sorted_runs:SortedRuns",
    "max-tree": "max_tree:MaxTree",
    "cow-max-tree": "cow_max_tree:CowMaxTree",
    "kd-tree": "kd_tree:KdTree",
    "zones": "zones:Zones",
    "shapes": "shapes:Shapes",
    "sharded": "sharded:Sharded",
}
"""Of this package: name to module and class, in the order in which a report lists them."""

Options = Mapping[str, int | str]


class Catalogue(Mapping[str, type[Structure]]):
    """Name to class; a class is imported on first use."""

    def __getitem__(self, name: str) -> type[Structure]:
        """Raises: KeyError for an unknown name; BadCode."""
        place = f"{_PACKAGE}.{FAMILY[name]}" if name in FAMILY else built_in().get(name)
        if place is None and name in _ADMITTED:
            return _ADMITTED[name].kind
        if place is None:
            loaded: type[Structure] = own_code.load(_installed()[name])
            return loaded
        module, _, class_name = place.partition(":")
        found: type[Structure] = getattr(import_module(module), class_name)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys((*built_in(), *_installed(), *_ADMITTED))

    def __len__(self) -> int:
        return len({*built_in(), *_installed(), *_ADMITTED})


STRUCTURES: Final = Catalogue()


def built_in() -> dict[str, str]:
    """Name to module and class: those of this package, then those that a study has. Logs of stores may name either."""
    return {**{name: f"{_PACKAGE}.{place}" for name, place in FAMILY.items()}, **own_code.plugged("structures")}


class _Admitted(NamedTuple):
    target: str
    kind: type[Structure]


_ADMITTED: Final[dict[str, _Admitted]] = {}


def admit(target: str) -> str:
    """Registers a structure in this process, and returns its name. `target`: `FILE.py:CLASS`, `MODULE:CLASS`, or a
    name. No API calls this: permission to declare an index must not permit running files.

    Raises: BadCode; InvalidRequest if the name is taken."""
    if ":" not in target:
        return target
    place = own_code.absolute(target)
    for name, admitted in _ADMITTED.items():
        if admitted.target == place:
            return name
    name, kind = _found(place)
    if name in built_in() or name in _installed():
        raise InvalidRequest(f"{target}: {name} is a built-in structure; rename yours")
    if name in _ADMITTED:
        raise InvalidRequest(f"{target}: another structure is also named {name}; rename one of them")
    _ADMITTED[name] = _Admitted(place, kind)
    return name


def name_of(target: str) -> str:
    """The name of a structure; anything but `FILE.py:CLASS` or `MODULE:CLASS` is already a name.

    Raises: BadCode."""
    return _found(target)[0] if ":" in target else target


def _found(target: str) -> tuple[str, Any]:
    kind: Any = own_code.find_class(target, "find")
    return own_code.name_of(kind, target, "structure"), kind


def admitted() -> tuple[str, ...]:
    """The arguments of `admit` in this process, in a form valid in another process."""
    return tuple(each.target for each in _ADMITTED.values())


@cache
def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP) if point.name not in built_in()}


def options_of(name: str) -> dict[str, int | str]:
    """The options of a structure and their defaults.

    Raises: InvalidRequest for an unknown name, or an option whose default is neither an int nor a text."""
    options = {}
    for parameter in list(inspect.signature(_named(name)).parameters.values())[1:]:
        if type(parameter.default) not in (int, str):
            raise InvalidRequest(f"structure {name}: {parameter.name} needs a default, a whole number or a text")
        options[parameter.name] = parameter.default
    return options


def build(name: str, dimensions: int, options: Options) -> Structure:
    """An empty structure.

    Raises: InvalidRequest for an unknown name or option, or an invalid value."""
    structure: Any = _named(name)
    check_options(name, options)
    built: Structure = structure(dimensions, **options)
    return built


def check_options(name: str, options: Options) -> None:
    """Raises: InvalidRequest for an unknown name or option, or a value of another type."""
    defaults = options_of(name)
    for option, value in options.items():
        if option not in defaults:
            known = ", ".join(f"{known} (default {default!r})" for known, default in defaults.items())
            raise InvalidRequest(f"structure {name} has no option {option!r}; it has {known or 'none'}")
        if type(value) is not type(defaults[option]):
            wanted = "a whole number" if isinstance(defaults[option], int) else "a text"
            raise InvalidRequest(f"structure {name}: {option} is {value!r}; it takes {wanted}")


def _named(name: str) -> type[Structure]:
    if name not in STRUCTURES:
        raise InvalidRequest(f"no structure is named {name!r}; there are {', '.join(STRUCTURES)}")
    try:
        return STRUCTURES[name]
    except own_code.BadCode as error:
        raise InvalidRequest(f"structure {name}: {error}") from error
