"""What the documentation shows of the public door runs as written."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minikube_py
from minikube_py import Cluster
from minikube_py.cluster.clients import Clients
from minikube_py.cluster.faults import Faults, Node
from minikube_py.cluster.program_clients import OUTSIDE
from minikube_py.cluster.program_kopf import OperatorClients
from minikube_py.cluster.webhooks import Webhook

pytestmark = pytest.mark.real_time("real sockets and threads")
ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs/reference/cluster.md").read_text(encoding="utf-8")
INSIDE = {"of_this_process", "close", "aclose"}
"""For the plugin, and for the cluster's own end."""
LEFT_OUT = {"self", "namespace"}
PAGES = ("docs/reference/cluster.md", "docs/how-to/virtual-time.md", "docs/how-to/pods-that-fail.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert snippets
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)


def test_every_fault_is_a_row_of_the_table_with_its_parameters() -> None:
    _, _, section = REFERENCE.partition("## Faults on demand\n")
    cells = [line.split("|")[1] for line in section.partition("\n### ")[0].splitlines() if line.startswith("| `")]
    documented: dict[str, set[str]] = {}
    for name, parameters in re.findall(r"(\w+)\(([^)]*)\)", "".join(cells)):
        names = {each.partition("=")[0].strip() for each in parameters.split(",") if each}
        documented[name] = documented.get(name, set()) | names
    methods = [getattr(each, name) for each in (Faults, Node) for name in vars(each) if not name.startswith("_")]
    methods += [Cluster.end_container, Cluster.all_well]
    assert documented == {each.__name__: parameters_of(each) for each in methods}


def parameters_of(method: Any) -> set[str]:
    """With `*` where some are keywords alone."""
    found = {name: each for name, each in inspect.signature(method).parameters.items() if name not in LEFT_OUT}
    return {*found, *("*" for each in found.values() if each.kind is each.KEYWORD_ONLY)}


def test_every_client_that_a_page_names_is_there() -> None:
    """`clients` is what a program gets, `cluster.client` what a test has."""
    # Both forms, for handlers.
    offered = {"clients": {*dir(OperatorClients), *OUTSIDE}, "client": set(dir(Clients))}
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    used = re.findall(r"(?<![\w./])(?:cluster\.|c\.|minikube\.|memo\.)?(clients?)\.(\w+)\(", "".join(map(_text, pages)))
    assert {("clients", "httpx_asyncio"), ("clients", "kopf"), ("client", "httpx")} <= set(used)
    assert [each for each in used if each[1] not in offered[each[0]] | {"get", "post", "stream"}] == []
    assert [each for each in re.findall(r"`clients\.(\w+)", _text(ROOT / "docs/how-to/explore.md"))
            if each not in offered["clients"]] == []  # fmt: skip


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_every_public_name_of_a_cluster_is_on_the_page() -> None:
    for each in (Cluster, Clients, Webhook):
        names = [name for name in dir(each) if not name.startswith("_") and name not in INSIDE]
        pages = REFERENCE + (ROOT / "docs/how-to/explore.md").read_text(encoding="utf-8")
        assert [name for name in names if not re.search(rf"\b{name}\b", pages)] == [], each


def test_every_type_and_exception_of_the_public_door_is_public() -> None:
    """What its annotations take, and what it says that it raises."""
    code = "from minikube_py import *; print(AsyncCluster, Cluster, ClusterError, NodeSpec, SimFailure, WaitTimeout)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    raised = set()
    for each in (Cluster, *Cluster.__mro__):
        for method in vars(each).values():
            raised |= set(re.findall(r"\b([A-Z]\w+(?:Error|Failure|Timeout))\b", inspect.getdoc(method) or ""))
    assert "SimFailure" in raised and raised <= {*minikube_py.__all__, "TimeoutError"}, raised
    pages = REFERENCE + "".join(_text(ROOT / page) for page in PAGES) + _text(ROOT / "docs/reference/pytest.md")
    assert set(re.findall(r"\bSim[A-Z]\w+", pages)) <= set(minikube_py.__all__)
    assert not re.search(r"minikube_py\.kubelet|minikube_py\.sim", REFERENCE)


def test_the_package_lists_what_it_offers_before_it_is_imported() -> None:
    code = "import sys, minikube_py; print(*dir(minikube_py), 'minikube_py.cluster' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    *names, loaded = found.split()
    assert loaded == "False" and {"Cluster", "__version__"} <= {*names}
    _, _, said = REFERENCE.partition("from minikube_py import")
    for name in names:
        assert name.startswith("__") or f"`{name}`" in REFERENCE or name in said.splitlines()[0], name
