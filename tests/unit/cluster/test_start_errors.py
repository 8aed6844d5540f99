"""What only a start can find wrong is a ClusterError that names the parameter, in each form of a cluster."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.plane import Plane

pytestmark = pytest.mark.real_time("real sockets and threads")
FORMS = ("real", "async", "virtual")


def started(form: str, given: dict[str, Any]) -> None:
    async def in_loop() -> None:
        async with Cluster(**given) as cluster:
            assert cluster.url

    if form == "async":
        asyncio.run(in_loop())
        return
    with Cluster(**given, clock="real" if form == "real" else "virtual") as cluster:
        assert cluster.url


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def busy(folder: Path, ends: ExitStack) -> dict[str, Any]:
    ends.enter_context(Cluster(data_dir=folder))
    return {"data_dir": folder}


def damaged(folder: Path, ends: ExitStack) -> dict[str, Any]:
    with Cluster(data_dir=folder):
        pass
    written(folder / "member/store/identity", "nobody")
    return {"data_dir": folder}


def taken(folder: Path, ends: ExitStack) -> dict[str, Any]:
    server = ends.enter_context(socket.create_server(("127.0.0.1", 0)))
    return {"port": server.getsockname()[1]}


def empty(folder: Path, ends: ExitStack) -> dict[str, Any]:
    folder.mkdir()
    return {"stages": folder}


KIND = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: a}\nspec: {resourceRef: {kind: Nope}}\n"
WRONG: dict[str, Callable[[Path, ExitStack], dict[str, Any]]] = {
    "stages absent": lambda path, _: {"stages": path},
    "stages among others": lambda path, _: {"stages": [path.parent, path]},
    "stages no YAML": lambda path, _: {"stages": written(path, "a: [")},
    "stages others": lambda path, _: {"stages": written(path, "kind: Pod\n")},
    "stages of no kind": lambda path, _: {"stages": written(path, KIND)},
    "stages in no file": empty,
    "data_dir a file": lambda path, _: {"data_dir": written(path, "")},
    "data_dir in a file": lambda path, _: {"data_dir": written(path, "") / "x"},
    "data_dir a device": lambda path, _: {"data_dir": "/dev/null"},
    "data_dir not for folders": lambda path, _: {"data_dir": "/proc/none"},
    "data_dir in use": busy,
    "data_dir damaged": damaged,
    "port taken": taken,
    "port taken, with a folder": lambda path, ends: {"data_dir": path, **taken(path, ends)},
}


# Virtual time has no folder.
CASES = [
    (wrong, form)
    for wrong in WRONG
    for form in FORMS
    if form != "virtual" or not ("data_dir" in wrong or "folder" in wrong)
]


@pytest.mark.parametrize(("wrong", "form"), CASES)
def test_the_parameter_is_named(tmp_path: Path, wrong: str, form: str) -> None:
    with ExitStack() as ends:
        given = WRONG[wrong](tmp_path / "there", ends)
        for _ in range(2):
            with pytest.raises(ClusterError) as raised:
                started(form, given)
            text = str(raised.value)
            assert text.startswith(f"{wrong.split()[0]}: ") and ": :" not in text
            assert "; name another with --" not in text


@pytest.mark.parametrize("form", FORMS)
def test_what_no_parameter_is_to_blame_for_is_a_public_exception_too(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Plane, config: object) -> None:
        raise RoleFailed("the scheduler has ended", 1)

    monkeypatch.setattr(Plane, "start_components", fail)
    with pytest.raises(ClusterError, match=r"^the scheduler has ended$"):
        started(form, {})
