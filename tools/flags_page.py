#!/usr/bin/env python3
"""Writes docs/reference/flags.md: every flag and argument of every command, from the parsers that read them.

python tools/flags_page.py --write      (without it: exits with 1 where the page is not up to date)
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import page_table  # noqa: E402
from page_table import DOCS, table  # noqa: E402

from minikube_py.cli import forms  # noqa: E402
from minikube_py.cli import main as cli  # noqa: E402

PAGE = DOCS / "reference" / "flags.md"
CODE = re.compile(r"(`[^`]*`)")
FLAG = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*\b(=[a-z]+)?")
PLAIN = ("positional arguments", "options")


def parsers() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, summary and parser of each command that can be run."""
    for name in cli.COMMANDS:
        module = import_module(f"minikube_py.cli.{name.replace('-', '_')}")
        yield from _of(name, cli.COMMANDS[name], module)
        for part, summary in getattr(module, "SUBCOMMANDS", {}).items():
            yield from _of(f"{name} {part}", summary, import_module(f"{module.__name__}_{part.replace('-', '_')}"))


def _of(name: str, summary: str, module: ModuleType) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    if not hasattr(module, "run"):
        return
    parser = argparse.ArgumentParser(prog=name)
    module.configure(parser)
    parts = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not parts:
        yield name, summary.replace(": {}", ""), parser
    for part in parts:
        told = {each.dest: each.help or "" for each in part._choices_actions}
        yield from ((f"{name} {each}", told[each], own) for each, own in part.choices.items())


def rows(parser: argparse.ArgumentParser, actions: Iterable[argparse.Action]) -> list[tuple[str, str]]:
    """Of each flag or argument: how it is written, and its help with its default."""
    usual = parser.get_default(forms.USUAL) or {}
    found = []
    for action in actions:
        if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            default = usual[action.dest][1] if action.dest in usual else action.default
            found.append((_written(action), _told(parser, action, default)))
    return found


def _written(action: argparse.Action) -> str:
    value = action.metavar or action.dest.upper()
    assert isinstance(value, str)
    if action.choices is not None and action.metavar is None:
        value = "|".join(map(str, action.choices))
    if not action.option_strings:
        return _code(f"[{value}]" if action.nargs in ("?", "*") else value)
    named = ", ".join(action.option_strings)
    return _code(named if action.nargs == 0 else f"{named} {value}")


def _told(parser: argparse.ArgumentParser, action: argparse.Action, default: object) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    more = []
    if action.option_strings and action.required:
        more.append("required")
    if isinstance(action, argparse._AppendAction) and not re.search("repeat|several", text):
        more.append("repeatable")
    shown = "" if default in (None, False, [], (), frozenset(), argparse.SUPPRESS) else str(default)
    if shown not in text and "default" not in text:
        more.append(f"default: {shown}")
    return _prose(f"{text} ({'; '.join(more)})" if more else text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _prose(text: str) -> str:
    """As Markdown in a cell: flags as code, and nothing that marks anything else."""
    parts = CODE.split(" ".join(text.split()))
    for at in range(0, len(parts), 2):
        parts[at] = FLAG.sub(lambda flag: f"`{flag[0]}`", re.sub(r"([*_<\[])", r"\\\1", parts[at]))
    return "".join(parts).replace("|", r"\|")


def page() -> str:
    sections: dict[str, str] = {}
    for name, summary, parser in parsers():
        plain = [each for group in parser._action_groups if group.title in PLAIN for each in group._group_actions]
        groups = [("", plain), *((g.title, g._group_actions) for g in parser._action_groups if g.title not in PLAIN)]
        tables = [
            table([f"Flag: {title}" if title else "Flag", "What it does"], found)
            for title, actions in groups
            if (found := rows(parser, actions))
        ]
        text = "\n".join(tables)
        same = next((other for other, told in sections.items() if text and told.endswith(f"\n\n{text}")), None)
        told = f"It has the flags of [{same}](#{same.replace(' ', '-')}).\n" if same else text
        sections[name] = f"## {name}\n\n{_prose(summary[:1].upper() + summary[1:])}.\n\n{told}"
    return "\n".join(sections.values())


def main(arguments: list[str]) -> int:
    return page_table.put(arguments, "flags_page", PAGE, page(), "the parsers of minikube_py/cli")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
