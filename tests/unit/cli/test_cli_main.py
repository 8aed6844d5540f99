"""The frame of the command line: what is printed where, and how it ends."""

import subprocess
import sys

import pytest

from minikube_py.cli import main as cli


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "text"),
    [
        pytest.param([], 2, "err", "usage: minikube-py COMMAND", id="nothing asked"),
        pytest.param(["--help"], 0, "out", "start a control plane", id="help"),
        pytest.param(["--version"], 0, "out", "minikube-py 0.", id="version as a flag"),
        pytest.param(["version"], 0, "out", "minikube-py 0.", id="version as a command"),
        pytest.param(["nope"], 2, "err", "unknown command 'nope'", id="unknown command"),
        pytest.param(["version", "--nope"], 2, "err", "unrecognized arguments: --nope", id="unknown flag"),
        pytest.param(["trace"], 2, "err", "required: convert", id="subcommand missing"),
        pytest.param(["trace", "convert", "--from", "/nowhere"], 1, "err", "/nowhere/openb_node", id="absent folder"),
        pytest.param(["trace", "convert", "--pods", "x"], 2, "err", "invalid choice: 'x'", id="bad choice"),
    ],
)
def test_ends(
    arguments: list[str], code: int, stream: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    captured = capsys.readouterr()
    assert text in getattr(captured, stream)
    assert getattr(captured, "out" if stream == "err" else "err") == ""
    if code == 1:
        assert captured.err.count("\n") == 1, "an error is one line"


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert f"usage: minikube-py {command}" in capsys.readouterr().out


def test_nothing_heavy_is_imported_before_the_command_is_known() -> None:
    script = "import sys, minikube_py.cli.main; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "asyncio", "numpy", "rich", "matplotlib", "cryptography", "yaml"} & set(modules)


def test_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m minikube_py --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
