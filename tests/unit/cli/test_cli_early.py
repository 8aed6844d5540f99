"""A command that writes a file says before its work that it cannot, by path and flag; an address is named, too."""

from __future__ import annotations

import errno
import socket

import pytest

from minikube_py.cli.main import main, one_line
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.listen import free_address


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("index check max-tree --plot /dev/null/x.png", 2, "argument --plot: /dev/null/x.png: no file can be written"),
        ("lab packing --seeds 42 --write /dev/null/a/x", 1, "under /dev/null/a: Not a directory; choose another"),
        ("lab packing --seeds 42 --journal /dev/null/a/x", 1, "choose another folder with --journal"),
        ("lab prediction --write /dev/null/a/x", 1, "choose another folder with --write"),
        ("lab prediction --png /dev/null/a/x", 1, "choose another folder with --png"),
        ("trace convert --from / --to /dev/null/a", 1, "choose another folder with --to"),
    ],
)
def test_what_cannot_be_written(words: str, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == code
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_an_error_of_the_system_names_its_path() -> None:
    assert one_line(FileNotFoundError(errno.ENOENT, "No such file or directory", "/nope/x.png")) == (
        "/nope/x.png: No such file or directory"
    )


def test_an_address_of_another_host_is_named_with_its_flag() -> None:
    with pytest.raises(SetupError) as caught:
        free_address("192.0.2.1", None)
    assert str(caught.value).startswith("cannot listen on 192.0.2.1:6443: ")
    assert str(caught.value).endswith("; name another with --host")
    with pytest.raises(SetupError, match="name another with --bind-address"):
        free_address("192.0.2.1", 0, "--secure-port")


def test_a_port_that_is_taken_is_named_with_its_own_flag() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(SetupError, match="already in use; name another with --port"),
    ):
        free_address("127.0.0.1", taken.getsockname()[1])
