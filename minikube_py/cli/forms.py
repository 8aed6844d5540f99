"""Flags of a command with several forms, of which each honours some: the others are refused by name, never ignored."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from minikube_py.errors import WrongUsage

USUAL: Final = "usual"


def watch(parser: argparse.ArgumentParser) -> None:
    """After the last flag: from now on those that are not given are not in the namespace until `require` puts their
    defaults there."""
    flags = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    parser.set_defaults(**{USUAL: {each.dest: (each.option_strings[0], each.default) for each in flags}})
    for each in flags:
        each.default = argparse.SUPPRESS


def refuse(arguments: argparse.Namespace, form: str, table: Mapping[str, tuple[str, ...]]) -> None:
    """Before `require`, for a command whose forms combine: once for each choice. `form`: the one that is asked for.
    `table`: by a flag's destination, the forms that honour it; every form honours a flag that is not there.

    Raises: WrongUsage for flags of other forms."""
    usual: dict[str, tuple[str, object]] = getattr(arguments, USUAL)
    others = [each for each in usual if hasattr(arguments, each) and form not in table.get(each, (form,))]
    refused = [f"{usual[each][0]} needs {' or '.join(table[each])}" for each in others]
    if refused:
        raise WrongUsage(f"{'; '.join(refused)}; this is {form}")


def require(arguments: argparse.Namespace, form: str, table: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Those given; the others get their defaults. Otherwise as `refuse`."""
    refuse(arguments, form, table)
    usual: dict[str, tuple[str, object]] = getattr(arguments, USUAL)
    given = frozenset(each for each in usual if hasattr(arguments, each))
    for name in sorted(usual.keys() - given):
        setattr(arguments, name, usual[name][1])
    return given
