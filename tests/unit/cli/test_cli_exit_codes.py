"""A wrong value of a flag is wrong usage (2), said before anything starts, with the flag's or the option's name."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from minikube_py.cli.main import COMMANDS, main

ANY_TEXT = {
    "a name, a path or a pattern": """
        --audit-log-path --etcd-prefix --workload --labels --topic --name --advertise --scheduler-name
        --leader-elect-resource-name --leader-elect-resource-namespace --leader-elect-identity --claim-prefix
        --claim-identity --secrets-dir --index -n name to study test
        """,
    "what a server answers, which refuses it": "--on --fields --sum --memory-limit where selector",
    "judged by the command, which raises WrongUsage": "--etcd-servers --until --option",
}
"""The flags whose text argparse does not judge, by why."""

FRONT = """
class Mine:
    front = "mine"

    def __init__(self, points, shards, *, k=2):
        pass

    def passing(self, queries):
        pass
"""


def flags_of(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, argparse.Action]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from flags_of(each)
        else:
            yield parser, action


def of_all_commands() -> Iterator[argparse.Action]:
    for name in COMMANDS:
        module = import_module(f"minikube_py.cli.{name.replace('-', '_')}")
        for part in ("", *getattr(module, "SUBCOMMANDS", {})):
            command = import_module(f"{module.__name__}_{part.replace('-', '_')}") if part else module
            parser = argparse.ArgumentParser(add_help=False)
            if hasattr(command, "configure"):
                command.configure(parser)
                yield from (action for _, action in flags_of(parser))


def test_every_flag_judges_its_text_or_takes_any() -> None:
    free = {
        (action.option_strings or [action.dest])[0]
        for action in of_all_commands()
        if action.nargs != 0 and action.type is None and not action.choices
    }
    assert free == {flag for flags in ANY_TEXT.values() for flag in flags.split()}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("up --tls-san a*b", "argument --tls-san: 'a*b' is neither a host name nor an address"),
        ("up --etcd-servers nope", "--etcd-servers 'nope': write https://HOST:PORT"),
        ("bench schedule --matcher nope", "argument --matcher: 'nope' is not one of scan, columns, "),
        ("bench schedule --store-index nope", "argument --store-index: 'nope': write NAME=STRUCTURE"),
        ("bench schedule --store-index a=nope", "argument --store-index: no structure is named 'nope'"),
        ("bench flow --solver nope", "argument --solver: there is no solver 'nope'; the solvers are: "),
        ("bench flow --model nope", "argument --model: there is no cost model 'nope'; the models are: "),
        ("lab packing --pods default,nope", "argument --pods: there is no pod list 'nope'; there are cpu037, "),
        ("lab prediction --predictor n-sigma,nope+risk", "there is no predictor 'nope'; the predictors are: reserved"),
        ("lab calls replay --nodes 10", "--nodes needs lab calls density; this is lab calls replay"),
        ("lab calls --departures", "--departures needs lab calls replay; this is lab calls density"),
        ("trace convert --lists --usage", "argument --usage: not allowed with argument --lists"),
        ("kubeconfig --data-dir d --secrets-dir s", "argument --secrets-dir: not allowed with argument --data-dir"),
        ("lab study nope", "there is no study 'nope': there are bloom, "),
        (f"replay --from {__file__} --until ===", "'===' names no moment; write 12.5"),
        ("store --data-dir d --listen nope", "argument --listen: nope: not an address; write host:port"),
        ("store --data-dir d --initial-cluster nope", "argument --initial-cluster: 'nope' is not"),
        ("store --data-dir d --listen-client-urls nope", "argument --listen-client-urls: 'nope': write https://HOST"),
        ("store member add x --peer nope", "argument --peer: nope: not an address"),
        ("store status --endpoints nope:1,nope", "argument --endpoints: nope: not an address"),
        ("apiserver --store nope", "argument --store: nope: not an address"),
        ("apiserver --bind-address nope", "argument --bind-address: 'nope' is not an IP address"),
        ("kubelet --kubeconfig x --share 3/2", "argument --share: 3/2: write INDEX/COUNT with INDEX below COUNT"),
        ("kubelet --kubeconfig x --healthz nope", "argument --healthz: nope: not an address"),
        ("health store --address nope", "argument --address: nope: not an address"),
        ("init-secrets --dir d --hosts a*b", "argument --hosts: 'a*b' is neither a host name nor an address"),
        ("init-secrets --dir d --server nope:1", "argument --server: nope:1: not the URL of a server"),
        ("kubeconfig --server nope", "argument --server: nope: not the URL of a server"),
        ("plugin check os.path:join --args {", "argument --args: '{': yaml: line 1: did not find"),
        ("model check CPU_MEM --args {", "argument --args: '{': yaml: line 1: did not find"),
        ("predictor check n-sigma --args [1]", "argument --args: '[1]' is not a mapping; write {NAME: VALUE}"),
    ],
)
def test_a_wrong_value_ends_with_2(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert f": {text}" in printed.err
    assert printed.err.endswith(" --help\n")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("index check max-tree --option nope=1", "structure max-tree has no option 'nope'; it has "),
        ("index check FILE.py:Mine --option nope=1", "structure Mine has no option 'nope'; it has k"),
        ("front check skyline --option nope=1", "front skyline has no option 'nope'; it has "),
        ("front check FILE.py:Mine --option nope=1", "front mine has no option 'nope'; it has k"),
        ("index check max-tree --option nope", "option 'nope': write NAME=VALUE"),
    ],
)
def test_an_option_that_is_not_taken_is_wrong_usage(
    words: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.py"
    own.write_text(FRONT + "\n    find = passing\n")
    given = words.replace("FILE.py", str(own)).split()
    assert main([*given, "--examples", "1", "--no-bench"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"minikube-py {given[0]} check: {text}")
    assert said.endswith(f"; see minikube-py {given[0]} check --help\n")


def test_a_foreign_file_is_kept_and_the_flag_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from minikube_py.control_plane.kubeconfig import Access, write_kubeconfig

    (tmp_path / "kubeconfig").touch()
    write_kubeconfig(tmp_path / "ours", Access("https://127.0.0.1:1", b"pem", "token"))
    (tmp_path / "ours").rename(tmp_path / "kubeconfig")
    foreign = tmp_path / "passwd"
    foreign.write_text("root:x:0:0\n")
    assert main(["kubeconfig", "--data-dir", str(tmp_path), "--output", str(foreign)]) == 1
    assert capsys.readouterr().err.endswith("was not written by minikube_py; name another file with --output\n")
    assert foreign.read_text() == "root:x:0:0\n"
