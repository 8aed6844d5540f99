"""Inequalities as a user asks them: kubectl and raw HTTP against `minikube-py up`, in one process and split."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from needs import require_kubectls
from patience import eventually
from up_process import Up, up

from minikube_py.lab.metrics import parse, total_of_suffix

pytestmark = pytest.mark.kubectl
QUESTION = "free.cpu>=4,free.memory>=16Gi"
CPUS = (2, 4, 6, 8, 16)
"""`n0` to `n4`; the even ones have 64Gi, the odd ones 8Gi, and `n3` alone has gadgets."""


class World:
    """A control plane with nodes made by hand, kubectl, and plain HTTP beside it."""

    def __init__(self, running: Up, kubectl: Path, home: Path) -> None:
        self.running, self._kubectl, self.home = running, kubectl, home
        self.access, self.tls, self.address = running.access, running.tls(), running.address

    def command(self, *arguments: str) -> list[str]:
        return [str(self._kubectl), "--kubeconfig", str(self.running.kubeconfig), *arguments]

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home)}

    def kubectl(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(self.command(*arguments), env=self.environment(), capture_output=True, text=True)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout if code == 0 else done.stderr

    def names(self, selector: str, *arguments: str) -> list[str]:
        out = self.kubectl("get", "nodes", "--field-selector", selector, "-o", "name", *arguments)
        return [line.removeprefix("node/") for line in out.split()]

    @contextlib.contextmanager
    def request(self, method: str, path: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(*self.address, context=self.tls, timeout=30)
        headers = {"Authorization": f"Bearer {self.access.token}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with self.request(method, path, body) as answer:
            text = answer.read()
            assert answer.status < 300, text
            return json.loads(text)

    def node(self, name: str, cpu: int, memory: str, **more: str) -> None:
        allocatable = {"cpu": str(cpu), "memory": memory, "pods": "110", **more}
        body = {"metadata": {"name": name}, "spec": {"unschedulable": True}, "status": {"allocatable": allocatable}}
        self.ask("POST", "/api/v1/nodes", body)

    def quiet(self) -> bool:
        """All nodes are ready, and tainted no more for not having been."""
        nodes = self.ask("GET", "/api/v1/nodes")["items"]
        ready = [
            any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))
            and not any("not-ready" in taint["key"] for taint in node["spec"].get("taints", ()))
            for node in nodes
        ]
        return all(ready)

    def bind(self, name: str, node: str, cpu: str, memory: str = "1Gi") -> str:
        """A pod is made and bound as a scheduler would; the version of the binding."""
        requests = {"cpu": cpu, "memory": memory}
        spec = {"schedulerName": "me", "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
        pods = "/api/v1/namespaces/default/pods"
        made = self.ask("POST", pods, {"metadata": {"name": name}, "spec": spec})
        self.ask("POST", f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": {"name": node}})
        query = f"watch=true&fieldSelector=metadata.name={name}&resourceVersion={made['metadata']['resourceVersion']}"
        with self.request("GET", f"{pods}?{query}") as answer:
            # The first change is the binding; the kubelet's come later.
            bound = json.loads(answer.readline())["object"]
        assert bound["spec"]["nodeName"] == node
        version: str = bound["metadata"]["resourceVersion"]
        return version

    def free(self, name: str) -> None:
        self.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")

    def version(self) -> str:
        version: str = self.ask("GET", "/api/v1/nodes?limit=1")["metadata"]["resourceVersion"]
        return version

    def watch(self, selector: str, **query: str) -> Iterator[tuple[str, Any]]:
        query = {"watch": "true", "fieldSelector": selector, **query}
        path = "/api/v1/nodes?" + "&".join(f"{key}={quote(value)}" for key, value in query.items())
        with self.request("GET", path) as answer:
            for line in answer:
                event = json.loads(line)
                yield event["type"], event["object"]

    def moves(self, **query: str) -> Iterator[tuple[str, Any]]:
        """Who comes and goes; a node that changes otherwise (nobody sends its heartbeats) stays."""
        return (event for event in self.watch(QUESTION, **query) if event[0] != "MODIFIED")

    def metric(self, suffix: str) -> float:
        with self.request("GET", "/metrics") as answer:
            samples = parse(answer.read().decode())
        assert any(name.endswith(suffix) for name, _ in samples), suffix
        return total_of_suffix(samples, suffix)


@pytest.fixture(scope="module", params=[(), ("--split",)], ids=["one process", "split"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    binaries = require_kubectls()
    folder = tmp_path_factory.mktemp("where")
    with up("--nodes", "0", "--data-dir", str(folder / "data"), *request.param) as running:
        world = World(running, binaries[max(binaries)], folder)
        for number, cpu in enumerate(CPUS):
            more = {"example.com/gadget": "3"} if number == 3 else {}
            world.node(f"n{number}", cpu, "8Gi" if number % 2 else "64Gi", **more)
        eventually(world.quiet, "the kubelet and the controllers have written what they do to new nodes")
        yield world


SELECTORS = [
    (QUESTION, ["n2", "n4"]),
    ("free.cpu=6", ["n2"]),
    ("free.cpu==6000m", ["n2"]),
    ("free.cpu!=6", ["n0", "n1", "n3", "n4"]),
    ("free.cpu<6", ["n0", "n1"]),
    ("free.cpu<=6", ["n0", "n1", "n2"]),
    ("free.cpu>6", ["n3", "n4"]),
    ("free.cpu>=6", ["n2", "n3", "n4"]),
    ("free.cpu>5999m", ["n2", "n3", "n4"]),
    ("free.cpu in (4,16,5)", ["n1", "n4"]),
    ("free.example.com/gadget", ["n3"]),
    ("free.example.com/gadget>=3", ["n3"]),
    ("free.example.com/gadget<1", []),
    ("free.example.com/gadget!=3", ["n0", "n1", "n2", "n4"]),
    ("allocatable.memory>8Gi,requested.cpu=0", ["n0", "n2", "n4"]),
    ("free.cpu>=4,metadata.name!=n2", ["n1", "n3", "n4"]),
    ("metadata.name=n4,free.cpu>=4", ["n4"]),
    ("spec.unschedulable=true,free.cpu>8", ["n4"]),
    ("metadata.name=a>b", []),
    (r"metadata.name=a\,b\=c\\d", []),
]


@pytest.mark.parametrize(("selector", "wanted"), SELECTORS, ids=[each[0] for each in SELECTORS])
def test_every_operator(world: World, selector: str, wanted: list[str]) -> None:
    assert world.names(selector) == wanted


REFUSED = [
    ("free-cpu>=4", "field label not supported: free-cpu>"),
    ("free.cpu>=4,free-cpu", "can't understand"),
    ("spec.foo=1", "field label not supported: spec.foo"),
    ("spec.foo>=1", "field label not supported: spec.foo>"),
    ("free.cpu>=plenty", "quantities must match the regular expression"),
    ("metadata.name=a=b", "unescaped character in value"),
    (r"metadata.name=a\b", "invalid escape sequence"),
]


@pytest.mark.parametrize(("selector", "message"), REFUSED, ids=[each[0] for each in REFUSED])
def test_what_nobody_declared_is_refused_as_ever(world: World, selector: str, message: str) -> None:
    said = world.kubectl("get", "nodes", "--field-selector", selector, code=1)
    assert message in said and "BadRequest" in said
    with world.request("GET", f"/api/v1/nodes?fieldSelector={quote(selector)}") as answer:
        status = json.loads(answer.read())
    assert (status["code"], status["reason"]) == (400, "BadRequest")


def test_wide_shows_what_is_free_now_and_then(world: World) -> None:
    then = world.version()
    bound = world.bind("wide", "n4", "3500m", "2Gi")
    table = [line.split() for line in world.kubectl("get", "nodes", "-o", "wide").splitlines()]
    header = table[0]
    cells = {row[0]: dict(zip(reversed(header), reversed(row))) for row in table[1:]}
    assert cells["n4"]["FREE.CPU"] == "12500m" and cells["n4"]["FREE.MEMORY"] == "62Gi"
    assert "FREE.CPU" not in world.kubectl("get", "nodes")
    assert world.names("free.cpu>12500m") == []

    raw = f"/api/v1/nodes?fieldSelector={quote('free.cpu>12500m')}&resourceVersionMatch=Exact&resourceVersion="
    assert [n["metadata"]["name"] for n in json.loads(world.kubectl("get", "--raw", raw + then))["items"]] == ["n4"]
    later = json.loads(world.kubectl("get", "--raw", raw + bound))
    assert later["items"] == [] and later["metadata"]["resourceVersion"] == bound
    world.free("wide")
    assert world.names("free.cpu>12500m") == ["n4"]
    assert json.loads(world.kubectl("get", "--raw", raw + bound))["items"] == []


def test_kubectl_sees_a_node_leave_and_come_back(world: World) -> None:
    watching = subprocess.Popen(
        world.command("get", "nodes", "--field-selector", QUESTION, "-w", "--output-watch-events"),
        env=world.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watching.stdout is not None
        lines = (tuple(line.split()[:2]) for line in watching.stdout)
        assert next(lines) == ("EVENT", "NAME")
        assert sorted((next(lines), next(lines))) == [("ADDED", "n2"), ("ADDED", "n4")]
        moves = (line for line in lines if line[0] != "MODIFIED")
        world.bind("leave", "n2", "3")
        assert next(moves) == ("DELETED", "n2")
        world.free("leave")
        assert next(moves) == ("ADDED", "n2")
        world.kubectl("label", "node", "n2", "seen=yes", "--overwrite")
        assert next(line for line in lines if line != ("MODIFIED", "n4")) == ("MODIFIED", "n2")
    finally:
        watching.kill()
        watching.communicate()


def test_a_watch_goes_on_across_a_reconnect(world: World) -> None:
    start = world.version()
    left = world.bind("first", "n2", "3")
    world.bind("else", "n3", "1")
    world.free("first")
    seen: list[tuple[str, str]] = []
    mark = ""
    for kind, obj in world.moves(resourceVersion=start, allowWatchBookmarks="true"):
        if kind == "BOOKMARK" and len(seen) == 2:
            mark = obj["metadata"]["resourceVersion"]
            break
        seen += [(kind, obj["metadata"]["name"])] if kind != "BOOKMARK" else []
    assert seen == [("DELETED", "n2"), ("ADDED", "n2")] and int(mark) > int(left)
    world.bind("second", "n4", "13")
    world.free("second")
    resumed = (each for each in world.moves(resourceVersion=mark, allowWatchBookmarks="true") if each[0] != "BOOKMARK")
    seen += [(kind, obj["metadata"]["name"]) for kind, obj in (next(resumed), next(resumed))]
    world.free("else")
    assert seen == [("DELETED", "n2"), ("ADDED", "n2"), ("DELETED", "n4"), ("ADDED", "n4")]
    whole = world.moves(resourceVersion=start)
    again = [next(whole) for _ in seen]
    assert [(kind, obj["metadata"]["name"]) for kind, obj in again] == seen
    assert again[0][1]["metadata"]["resourceVersion"] == left, "the version at which the row left"


def test_what_comes_back_can_be_written(world: World) -> None:
    start = world.version()
    world.bind("back", "n2", "3")
    world.free("back")
    events = world.moves(resourceVersion=start)
    assert next(events)[0] == "DELETED"
    kind, obj = next(events)
    obj["metadata"].setdefault("annotations", {})["written"] = start
    assert kind == "ADDED" and world.ask("PUT", "/api/v1/nodes/n2", obj)["metadata"]["annotations"]["written"] == start


def test_no_object_is_decoded_to_find_it(world: World) -> None:
    decoded, rows = world.metric("index_objects_decoded_total"), world.metric("index_rows_examined_total")
    for _ in range(3):
        assert world.names(QUESTION) == ["n2", "n4"]
    assert world.metric("index_objects_decoded_total") == decoded == 0
    assert world.metric("index_rows_examined_total") > rows


def test_pages_neither_repeat_nor_skip(world: World) -> None:
    for number in range(23):
        world.node(f"page-{number:02}", 40 + number % 3, "256Gi")
    try:
        wanted = [f"page-{number:02}" for number in range(23) if number % 3]
        assert world.names("free.cpu>40", "--chunk-size", "4") == wanted
        names: list[str] = []
        path = f"/api/v1/nodes?limit=4&fieldSelector={quote('free.cpu>40')}"
        page = world.ask("GET", path)
        while True:
            names += [node["metadata"]["name"] for node in page["items"]]
            if not (token := page["metadata"].get("continue")):
                break
            if len(names) == 4:
                world.bind("between", "page-08", "30")
                world.bind("behind", "page-01", "30")
            page = world.ask("GET", f"{path}&continue={quote(token)}")
        assert names == wanted, "all pages show the first one's moment"
        assert world.names("free.cpu>40") == [name for name in wanted if name not in ("page-01", "page-08")]
    finally:
        for number in range(23):
            world.ask("DELETE", f"/api/v1/nodes/page-{number:02}")
