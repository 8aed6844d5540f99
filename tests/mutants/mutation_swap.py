"""A mutant in a process that has loaded the package already: the code of the functions it changes is exchanged.

A function's code is read at each call, so all that holds the function (classes, tables, wrappers) runs the mutant from
then on. What is done at import cannot be exchanged: `pairs` says None, and the mutant needs a process of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType

Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


def pairs(path: str, healthy: str, mutated: str) -> list[tuple[CodeType, CodeType]] | None:
    """The outermost functions that differ, as they are and as they become; None if what runs at import differs."""
    try:
        return _pairs(compile(healthy, path, "exec"), compile(mutated, path, "exec"))
    except SyntaxError:
        return None


def functions(of: Iterable[object], folder: str) -> dict[Key, list[FunctionType]]:
    """Those among the objects whose source lies in the folder."""
    found: dict[Key, list[FunctionType]] = {}
    for each in of:
        if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(folder):
            found.setdefault(_key(each.__code__), []).append(each)
    return found


def exchange(known: Mapping[Key, list[FunctionType]], those: list[tuple[CodeType, CodeType]]) -> bool:
    """Whether each function was there to be changed; if one was not, none is."""
    found = [(known.get(_key(healthy), []), mutated) for healthy, mutated in those]
    if not all(each for each, _ in found):
        return False
    for each, mutated in found:
        for function in each:
            function.__code__ = mutated
    return True


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _pairs(healthy: CodeType, mutated: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    if _own(healthy) != _own(mutated):
        return None
    found: list[tuple[CodeType, CodeType]] = []
    for one, other in zip(_nested(healthy), _nested(mutated), strict=True):
        if _same(one, other):
            continue
        if not one.co_flags & inspect.CO_OPTIMIZED:  # a class's body
            within = _pairs(one, other)
            if within is None:
                return None
            found += within
        elif one.co_freevars != other.co_freevars:
            return None
        else:
            found.append((one, other))
    return found


def _nested(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _same(one: CodeType, other: CodeType) -> bool:
    inner, outer = list(_nested(one)), list(_nested(other))
    return len(inner) == len(outer) and _own(one) == _own(other) and all(map(_same, inner, outer))


def _own(code: CodeType) -> tuple[object, ...]:
    """All but where its lines are, and what the code within it is."""
    consts = [(type(each), None if isinstance(each, CodeType) else repr(each)) for each in code.co_consts]
    return (
        code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags,
        code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_exceptiontable,
    )  # fmt: skip
