# ruff: noqa: E501
"""Files that people write for us - kubeconfigs, nodes, manifests, configurations, credentials - are refused with a
reason where they are huge, deep, or not what they should be: no file ends a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from minikube_py import env
from minikube_py.api.yaml_text import MAX_DEPTH, YamlError, documents
from minikube_py.client import outside
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.cluster.manifests import _of_path
from minikube_py.control_plane import kubeconfig, role_clients, store_access, tokens, users
from minikube_py.errors import MinikubeError
from minikube_py.lab.study.experiment import parse_any
from minikube_py.scheduler.config import ConfigError
from minikube_py.scheduler.configuration import files
from minikube_py.scheduler.configuration.chosen import ChosenScheduler

DEEP = 100_000
"""Levels at which PyYAML's composer in C ends the process."""
TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "no text": bytes(range(256)),
    "open lists": b"[" * DEEP,
    "lists in lists": b"[" * DEEP + b"]" * DEEP,
    "objects in objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "block lists in block lists": b"- " * DEEP + b"a",
    "block lists by tabs": b"-\t" * DEEP + b"a",
    "explicit keys": b"? " * DEEP + b"a",
    "a staircase": b"".join(b" " * at + b"a:\n" for at in range(2_000)),
    "aliases of aliases": b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40)),
    "a list that holds itself": b"a: &a [*a, *a]",
    "a day that no month has": b"a: 2020-99-99",
    "a long number": b"a: " + b"9" * 10_000,
    "a list as a key": b"? [a]\n: b",
    "several documents": b"a: 1\n---\nb: 2\n",
    "a scalar": b"x",
    "a list": b"[1, 2]",
    "lists of kubeconfigs": b"{current-context: [1], contexts: {a: 1}, clusters: 7, users: [[]]}",
    "odd members": b'{"current-context":"a","contexts":[{"name":"a","context":{"cluster":["x"],"user":{"y":1}}}]}',
    "an odd token": b"{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}], clusters: [{name: b, cluster: {server: 'https://x'}}], users: [{name: c, user: {tokenFile: [1]}}]}",
}  # fmt: skip
READERS: dict[str, Callable[[Path], Any]] = {
    "client/kubeconfig.py": load_kubeconfig,
    "control_plane/kubeconfig.py": kubeconfig.is_ours,
    "control_plane/role_clients.py": role_clients._document,
    "control_plane/store_access.py": store_access.read_access,
    "control_plane/tokens.py": tokens.read_token,
    "control_plane/tokens.py, keys": tokens.read_signing_key,
    "control_plane/users.py": users.read_token_auth_file,
    "cluster/manifests.py": _of_path,
    "lab/study/experiment.py": parse_any,
    "lab/study/experiment.py, TOML": lambda path: parse_any(path.rename(path.with_suffix(".toml"))),
    "scheduler/configuration/files.py": lambda path: files.write_scheduler(ChosenScheduler(path), path.parent / "out"),
}


def told(reader: Callable[[Path], Any], path: Path) -> None:
    try:
        reader(path)
    except (MinikubeError, ConfigError) as error:
        assert 0 < len(str(error)) < 20_000
    except OSError as error:
        assert error.strerror


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("reader", READERS)
def test_no_file_ends_the_process(tmp_path: Path, reader: str, text: str) -> None:
    path = tmp_path / "given.yaml"
    path.write_bytes(TEXTS[text])
    told(READERS[reader], path)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_has_a_size(tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env.read_file, "__defaults__", (1000,))
    path = tmp_path / "given.yaml"
    path.write_bytes(b"a: b\n" * 300)
    if reader == "control_plane/kubeconfig.py":
        assert kubeconfig.is_ours(path) is False
        return
    with pytest.raises((MinikubeError, ConfigError, OSError), match="larger than 1,000 bytes"):
        READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
def test_a_fifo_that_nobody_writes_to_is_refused_and_not_waited_for(tmp_path: Path, reader: str) -> None:
    path = tmp_path / "given.yaml"
    os.mkfifo(path)
    if reader == "control_plane/kubeconfig.py":
        assert kubeconfig.is_ours(path) is False
        return
    with pytest.raises((MinikubeError, ConfigError, OSError), match="not a regular file"):
        READERS[reader](path)


def test_a_fifo_is_no_certificate_of_an_extender_either(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ca.pem")
    with pytest.raises(ValueError, match=r"open .*/ca.pem: not a regular file"):
        outside.read_file(str(tmp_path / "ca.pem"))


@pytest.mark.parametrize("name", ["/dev/zero", "/"])
def test_what_has_no_end_or_is_a_folder_is_no_file(name: str) -> None:
    with pytest.raises(OSError, match=r"not a regular file|directory"):
        env.read_file(Path(name), 100_000)


@pytest.mark.parametrize("levels", [1, MAX_DEPTH, MAX_DEPTH + 1, 100_000])
def test_what_is_not_too_deep_is_read_as_ever(levels: int) -> None:
    """PyYAML's own composer recurses in C without bound, and would end the process."""
    for text in (b"[" * levels + b"x" + b"]" * levels, b"- " * levels + b"x"):
        if levels > MAX_DEPTH:
            with pytest.raises(YamlError, match="exceeded max"):
                documents(text)
        else:
            assert documents(text) == [yaml.load(text, yaml.SafeLoader)] if levels < 100 else documents(text)
    wide = b"[" + b"[],{}," * 1000 + b"]"
    assert documents(wide) == [[[], {}] * 1000]


def test_json_that_is_too_deep_is_refused() -> None:
    with pytest.raises(YamlError, match="json: offset"):
        documents(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


def test_aliases_that_stand_for_too_much_are_refused() -> None:
    lines = ["a: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"b{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 9)]
    with pytest.raises(YamlError, match="excessive aliasing"):
        documents("\n".join(lines).encode())
