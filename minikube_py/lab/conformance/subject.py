"""The structure under test: a class in a file or module, or a catalogue structure by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from minikube_py.errors import InvalidRequest, WrongUsage
from minikube_py.index import catalogue
from minikube_py.index.structure import Structure
from minikube_py.own_code import BadCode, find_class, name_of


class NoSubject(WrongUsage):
    """No such structure or option; the text says what to write."""


@dataclass(frozen=True, slots=True)
class Subject:
    """`made`: the class, or a catalogue structure's name; `options` are passed on to it."""

    title: str
    made: str
    kind: type[Structure] | None = None
    options: Mapping[str, int | str] = field(default_factory=dict)

    def build(self, dimensions: int) -> Structure:
        """Raises: InvalidRequest if the structure rejects the number of dimensions or an option."""
        if self.kind is None:
            return catalogue.build(self.made, dimensions, self.options)
        kind: Any = self.kind
        built: Structure = kind(dimensions, **self.options)
        return built


def find_subject(target: str, options: Mapping[str, int | str] | None = None) -> Subject:
    """`target`: FILE.py:CLASS, MODULE:CLASS, or the name of a structure.

    Raises: NoSubject."""
    place, _, class_name = target.rpartition(":")
    given = dict(options or {})
    if not place:
        if target in catalogue.STRUCTURES:
            try:
                catalogue.check_options(target, given)
            except InvalidRequest as error:
                raise NoSubject(str(error)) from error
            return Subject(target, target, None, given)
        known = ", ".join(catalogue.STRUCTURES)
        raise NoSubject(f"{target!r} is neither FILE.py:CLASS nor the name of a structure; the structures are {known}")
    try:
        kind: Any = find_class(target, "find")
    except BadCode as error:
        raise NoSubject(str(error)) from error
    require_options(kind, given, f"structure {class_name}")
    return Subject(name_of(kind, target, "structure"), class_name, kind, given)


def require_options(kind: Any, options: Mapping[str, int | str], what: str) -> None:
    """Raises: NoSubject for options that `kind`, a class or factory, does not take."""
    taken = signature(kind).parameters.values()
    names = [each.name for each in taken if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if unknown := [] if any(each.kind == each.VAR_KEYWORD for each in taken) else sorted(set(options) - set(names)):
        known = ", ".join(each.name for each in taken if each.default is not each.empty) or "none"
        raise NoSubject(f"{what} has no option {unknown[0]!r}; it has {known}")


def parse_options(texts: list[str]) -> dict[str, int | str]:
    """NAME=VALUE each; digits are parsed as a number. Raises: NoSubject."""
    options: dict[str, int | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise NoSubject(f"option {text!r}: write NAME=VALUE")
        digits = value[1:] if value.startswith("-") else value
        options[name] = int(value) if digits.isascii() and digits.isdigit() else value
    return options
