"""docs/reference/flags.md has every flag of every command, with its help and its default."""

from __future__ import annotations

import argparse
import re

import flags_page
import pytest
from doc_commands import PAGES

from minikube_py.cli import forms
from minikube_py.cli import main as cli

PARSERS = list(flags_page.parsers())
OTHERS = {
    "--check", "--enable-priority-and-fairness", "--encryption-provider-config", "--fairness", "--field-selector",
    "--full-trace", "--max-request-bytes", "--runtime-config", "--scale", "--shrink", "--storage-media-type",
    "--synced", "--unsafe-no-fsync", "--user", "--watch",
}  # fmt: skip
"""Of kubectl, kube-apiserver, etcd, docker-compose, pytest, tools/upstream and scripts of tests; not of a command."""


def test_the_page_is_what_the_parsers_say() -> None:
    assert flags_page.main([]) == 0


def test_every_command_is_there() -> None:
    named = {name.split()[0] for name, _, _ in PARSERS}
    assert named == set(cli.COMMANDS)
    assert {"store", "store member add", "bench scheduler-perf", "trace convert"} <= {name for name, _, _ in PARSERS}


@pytest.mark.parametrize(("name", "parser"), [(name, parser) for name, _, parser in PARSERS])
def test_every_flag_has_a_help(name: str, parser: argparse.ArgumentParser) -> None:
    for written, told in flags_page.rows(parser, parser._actions):
        assert told, (name, written)


@pytest.mark.parametrize("command", ["store", "up", "store member add"])
def test_the_parsers_are_those_of_the_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out.partition("options:")[2]
    helped = set(re.findall(r"^  (?:-\w\b.*?, )?(--[a-z-]+)", printed, re.MULTILINE))
    (parser,) = (parser for name, _, parser in PARSERS if name == command)
    flags = {each for action in parser._actions for each in action.option_strings if each.startswith("--")}
    assert helped <= flags and len(helped) > 5


def test_prose_names_flags_that_there_are() -> None:
    known = OTHERS | {flag for _, _, parser in PARSERS for each in parser._actions for flag in each.option_strings}
    told = {
        (page.name, flag)
        for page in PAGES
        if not {"adr", "studies"} & set(page.parts)
        for flag in re.findall(r"`(?:minikube-py [a-z -]*)?(--[a-z][a-z-]+)", page.read_text(encoding="utf-8"))
    }
    assert len(told) > 200
    assert not [each for each in sorted(told) if each[1] not in known and not each[1].startswith("--minikube-")]


def test_how_a_flag_is_written() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--many", action="append", default=[], metavar="A|B", help="some of *these*, unless --one")
    parser.add_argument("--one", default=3, required=True, metavar="N", help="100 %% of <it>")
    parser.add_argument("--none", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("place", nargs="?", choices=("here", "there"), help="where")
    forms.watch(parser)
    assert flags_page.rows(parser, parser._actions) == [
        (r"`--many A\|B`", r"some of \*these\*, unless `--one` (repeatable)"),
        ("`--one N`", r"100 % of \<it> (required; default: 3)"),
        (r"`[here\|there]`", "where"),
    ]
