"""Simulated programs refuse what they do not know, as real ones do: a test of a failure must not be told success."""

from __future__ import annotations

import string

import pytest
from test_shell import Clock
from virtual_time import run_virtually

from minikube_py.containers.files import Files, Held
from minikube_py.containers.process import Process, nothing
from minikube_py.containers.programs import PROGRAMS
from minikube_py.containers.runtime import start

FREE = frozenset(("true", ":", "false", "echo", "test", "[", "tar"))
"""Take any argument, or read theirs by themselves."""


def run(*argv: str) -> tuple[int, bytes, bytes]:
    """The exit code, and what went to stdout and stderr."""
    files = Files(Held(), 0.0, {}, ("/w",))
    files.write("/w/f", b"one\ntwo\n", 0.0)
    out: list[bytes] = []
    err: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    async def write_error(data: bytes) -> None:
        err.append(data)

    process = Process([*argv], files, Clock(), {"X": "v"}, "h", nothing, write, write_error, "/w")
    return run_virtually(lambda: start(process)), b"".join(out), b"".join(err)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - FREE))
def test_no_program_ignores_an_option_that_it_does_not_know(name: str) -> None:
    refused = 0
    for option in (*string.ascii_letters, *"%?@", "-none", "-help"):
        code, out, err = run(name, f"-{option}")
        told = f"{name}: unrecognized option: {option.removeprefix('-')}\n".encode()
        if err == told:
            refused += 1
            assert (code, out) == (2 if name == "grep" else 1, b"")
        else:
            assert len(option) == 1, "no program has long options"
    assert refused >= 40
    assert run(name, "-%", "f")[2] == f"{name}: unrecognized option: %\n".encode()


@pytest.mark.parametrize(("argv", "code", "out", "err"), [
    (("date", "foo"), 1, b"", b"date: invalid date 'foo'\n"), (("date", "-d", "yesterday"), 1, b"", b"date: unrecognized option: d\n"),  # noqa: E501
    (("env", "X=1", "printenv", "X"), 1, b"", b"env: extra operand 'X=1'\n"), (("printenv", "X"), 0, b"v\n", b""),
    (("hostname", "-i"), 1, b"", b"hostname: unrecognized option: i\n"), (("hostname", "new"), 1, b"", b"hostname: extra operand 'new'\n"),  # noqa: E501
    (("id", "-u"), 0, b"0\n", b""), (("id", "-un"), 0, b"root\n", b""), (("id", "nobody"), 1, b"", b"id: extra operand 'nobody'\n"),  # noqa: E501
    (("uname", "-m"), 0, b"x86_64\n", b""), (("uname", "-sn"), 0, b"Linux h\n", b""), (("uname",), 0, b"Linux\n", b""),
    (("cat", "-n", "f"), 1, b"", b"cat: unrecognized option: n\n"), (("cat", "--", "f"), 0, b"one\ntwo\n", b""),
    (("cat", "--", "-f"), 1, b"", b"cat: -f: No such file or directory\n"),
    (("touch", "-d", "x", "y"), 1, b"", b"touch: unrecognized option: d\n"), (("rm", "-i", "f"), 1, b"", b"rm: unrecognized option: i\n"),  # noqa: E501
    (("sleep",), 1, b"", b"sleep: missing operand\n"), (("mkdir",), 1, b"", b"mkdir: missing operand\n"),
    (("head", "-1", "f"), 0, b"one\n", b""), (("tail", "-n", "1", "f"), 0, b"two\n", b""), (("tail", "-f", "f"), 1, b"", b"tail: unrecognized option: f\n"),  # noqa: E501
])  # fmt: skip
def test_what_programs_say(argv: tuple[str, ...], code: int, out: bytes, err: bytes) -> None:
    assert run(*argv) == (code, out, err)
