"""The frame of the command line: what is printed where, and how it ends."""

import argparse
import importlib
import re
import subprocess
import sys

import pytest

from minikube_py.cli import forms, scheduler, up
from minikube_py.cli import main as cli
from minikube_py.index.catalogue import STRUCTURES


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "text"),
    [
        pytest.param([], 2, "err", "usage: minikube-py COMMAND", id="nothing asked"),
        pytest.param(["--help"], 0, "out", "start a control plane", id="help"),
        pytest.param(["--version"], 0, "out", "minikube-py 0.", id="version as a flag"),
        pytest.param(["version"], 0, "out", "minikube-py 0.", id="version as a command"),
        pytest.param(["nope"], 2, "err", "unknown command 'nope'", id="unknown command"),
        pytest.param(["lab", "packing", "--pods", ","], 2, "err", "',' has an empty part", id="nothing between commas"),
        pytest.param(["schedular"], 2, "err", "did you mean scheduler?", id="nearly a command"),
        pytest.param(["help"], 0, "out", "start a control plane", id="help as a command"),
        pytest.param(["help", "health"], 0, "out", "usage: minikube-py health", id="help of a command"),
        pytest.param(["help", "store", "alarm"], 0, "out", "usage: minikube-py store alarm", id="help of a subcommand"),
        pytest.param(["help", "nope"], 2, "err", "unknown command 'nope'", id="help of no command"),
        pytest.param(["version", "--nope"], 2, "err", "unrecognized arguments: --nope", id="unknown flag"),
        pytest.param(["trace"], 2, "err", "required: convert", id="subcommand missing"),
        pytest.param(["trace", "convert", "--from", "/nowhere"], 2, "err", "argument --from: /no", id="absent folder"),
        pytest.param(["bench", "query", "--nodes", "0"], 2, "err", "0 is not within 1 to 100,000", id="no nodes"),
        pytest.param(["up", "--nodes", "100001"], 2, "err", "is not within 0 to 100,000", id="too many nodes"),
        pytest.param(["up", "--port", "65536"], 2, "err", "is not within 0 to 65,535", id="no such port"),
        pytest.param(["demo", "--results", "/dev/null/x"], 1, "err", "cannot write results under", id="no results"),
        pytest.param(["replay", "google"], 2, "err", "there is no trace 'google'; the", id="unknown trace"),
        pytest.param(["replay", "openb", "--speed", "-1"], 2, "err", "not within 0 to 1,000,000", id="negative speed"),
        pytest.param(["replay", "openb", "--tables", "/nowhere"], 2, "err", "argument --tables: /no", id="no tables"),
        pytest.param(["replay"], 2, "err", "name either a trace", id="neither trace nor log"),
        pytest.param(["replay", "openb", "--speed", "2"], 2, "err", "--speed needs --departures", id="no form"),
        pytest.param(["replay", "openb", "--until", "1"], 2, "err", "--until needs --from LOG", id="other form"),
        pytest.param(["plugin", "check", "/nowhere.py:X"], 2, "err", "there is no file /nowhere.py", id="no plugin"),
        pytest.param(["up", "--matcher", "x"], 2, "err", "'x' is not one of scan, columns", id="no such matcher"),
        pytest.param(["scheduler", "--kubeconfig", "/nowhere"], 1, "err", "/nowhere: cannot read", id="no kubeconfig"),
        pytest.param(["trace", "convert", "--pods", "x"], 2, "err", "invalid choice: 'x'", id="bad choice"),
    ],
)
def test_ends(
    arguments: list[str], code: int, stream: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    captured = capsys.readouterr()
    assert text in getattr(captured, stream)
    if stream == "out":
        assert captured.err == ""
    else:
        assert text not in captured.out
        assert captured.err.count("\n") == 1 or not arguments, "an error is one line"


@pytest.mark.parametrize("command", ["up", "scheduler"])
@pytest.mark.parametrize(
    ("given", "name"),
    [pytest.param([], "columns", id="none named"), *(pytest.param(["--matcher", name], name) for name in STRUCTURES)],
)
def test_the_matcher_is_any_structure_there_is(command: str, given: list[str], name: str) -> None:
    parser = argparse.ArgumentParser()
    {"up": up, "scheduler": scheduler}[command].configure(parser)
    needed = ["--kubeconfig", "F"]
    found = parser.parse_args([*needed, *given])
    forms.require(found, "", {})
    assert found.matcher == name


@pytest.mark.parametrize("command", sorted(cli.COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert f"usage: minikube-py {command}" in capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name, text in cli.COMMANDS.items() if "{}" in text])
def test_the_overview_names_every_subcommand(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that its own help lists, and those that it takes."""
    assert cli.main([name, "--help"]) == 0
    of_its_own = capsys.readouterr().out
    assert cli.main(["--help"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == [name])
    listed = line.rpartition(": ")[2].split(", ")
    shown = re.findall(r"^ {2,4}([a-z-]+) {2,}\S", of_its_own.rpartition("commands:")[2] or of_its_own, re.MULTILINE)
    assert listed and set(listed) == {each for each in shown if not each.startswith("-")}
    for each in listed:
        assert cli.main([name, each, "--help"]) == 0, each
        assert f"usage: minikube-py {name} {each}" in capsys.readouterr().out


def test_no_command_with_subcommands_is_described_by_hand() -> None:
    for name, text in cli.COMMANDS.items():
        module = importlib.import_module(f"minikube_py.cli.{name.replace('-', '_')}")
        parts = getattr(module, "SUBCOMMANDS", None) or getattr(module, "PARTS", {})
        assert len(parts) < 2 or "{}" in text, name


def test_nothing_heavy_is_imported_before_the_command_is_known() -> None:
    script = "import sys, minikube_py.cli.main; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert not {"aiohttp", "asyncio", "numpy", "rich", "matplotlib", "cryptography", "yaml"} & set(modules)


@pytest.mark.parametrize(("given", "kept"), [("", True), ("['version']", False)])
def test_what_was_loaded_is_not_walked_again_at_the_end_of_a_process_of_its_own(given: str, kept: bool) -> None:
    script = f"""
import atexit, gc, sys
from minikube_py.cli.main import main
atexit.register(lambda: print(gc.get_freeze_count() > 0))
sys.argv = ["minikube-py", "version"]
main({given})
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == str(kept)


def test_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m minikube_py --help | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "more"),
    [
        *((f"store {each}", "") for each in ("status", "hash", "transfer-leader", "alarm list", "member list")),
        ("store member add", " m"),
        ("store snapshot save", " f"),
        ("store query", " nodes"),
        ("store salvage", " /nowhere"),
        *((f"index {each}", "") for each in ("list", "stats")),
        ("explain pod", " web"),
    ],
)
def test_an_error_begins_with_the_whole_command(command: str, more: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = "" if "/nowhere" in more else " --data-dir /nowhere"
    assert cli.main(f"{command}{more}{given}".split()) == 1
    assert capsys.readouterr().err.startswith(f"minikube-py {command}: ")


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("bench schedule --virtual --members 3", "minikube-py bench schedule: --virtual has one member"),
        ("help up extra", "minikube-py up: no command 'extra'"),
        ("help bench density extra", "minikube-py bench density: no command 'extra'"),
        ("help store snapshot extra", "minikube-py store snapshot: no command 'extra'"),
        ("explore nope::x", "minikube-py explore: there is no nope; name FILE::TEST"),
    ],
)
def test_wrong_usage_is_refused_by_the_command_that_was_meant(
    typed: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = cli.main(typed.split())
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and capsys.readouterr().err.startswith(text)


@pytest.mark.parametrize("name", ["bench density", "store snapshot verify", "index create"])
def test_help_is_that_of_the_part(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", *name.split()]) == 0
    assert capsys.readouterr().out.startswith(f"usage: minikube-py {name} ")


def test_what_is_no_snapshot_is_named_by_its_path_and_ends_as_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["store", "snapshot", "verify", __file__]) == cli.DAMAGED
    assert capsys.readouterr().err.startswith(f"minikube-py store snapshot verify: {__file__}: damaged at offset 0")
