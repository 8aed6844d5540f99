"""The page over the API server's core, in virtual time: who may see what, and what is watched when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import PAGE, Request, Response
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.ui import page as pages
from minikube_py.ui.page import Page

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
}  # fmt: skip


LIFE = ["created", "queued", "scored", "bound", "running"]


class Browser:
    """What a browser does, without one."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        core = cluster.plane.core
        secrets = iter(f"secret-{number}" for number in range(100))
        self.page = core.page = Page(core, cluster.clock, cluster.new_rng(), lambda: next(secrets))
        self.session = ""

    def ask(self, path: str, method: str = "GET", bearer: str = "", **query: str) -> Response:
        return self._handle(Request(method, path if path[:1] == "/" else PAGE + path, query), bearer or self.session)

    def _handle(self, request: Request, bearer: str) -> Response:
        core = self.cluster.plane.core

        async def handle() -> Response:
            header = f"Bearer {bearer}" if bearer else None
            request.user = core.access.authenticator.known(header)
            return await core.handle(request)

        return self.cluster.run(handle)

    def json(self, path: str, **query: str) -> Any:
        answer = self.ask(path, **query)
        assert answer.status == 200, answer.body
        return orjson.loads(answer.body)

    def login(self) -> str:
        code = self.page.link().partition("#")[2]
        answer = self.ask("login", "POST", code)
        assert answer.status == 200
        self.session = orjson.loads(answer.body)["session"]
        return code


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with VirtualCluster("page", nodes=3) as cluster:
        browser = Browser(cluster)
        yield browser
        cluster.run(browser.page.stop)


def test_the_page_holds_no_data_and_loads_nothing_from_outside(browser: Browser) -> None:
    for name in ("", "page.js", "page.css"):
        answer = browser.ask(name, bearer="")
        assert answer.status == 200 and b"http://" not in answer.body and b"https://" not in answer.body
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert browser.ask("", "POST").status == 405
    assert browser.ask("other").status == 404


def test_a_link_works_once(browser: Browser) -> None:
    code = browser.login()
    assert browser.ask("login", "POST", code).status == 401, "used up"
    assert browser.ask("login", "GET").status == 405
    assert browser.ask("login", "POST").status == 401, "a session is no link"


def test_an_administrator_gets_another_link(browser: Browser) -> None:
    browser.login()
    assert browser.ask("link").status == 401, "a session makes none"
    assert b"kubectl get --raw /minikube-py/ui/link" in browser.ask("link").body
    browser.cluster.plane.core.access.authenticator.add("of-the-kubeconfig", ADMIN)
    answer = browser.ask("link", bearer="of-the-kubeconfig")
    assert answer.status == 200
    code = answer.body.decode().strip().removeprefix(f"{PAGE}#")
    assert browser.ask("login", "POST", code).status == 200
    assert browser.ask("login", "POST", code).status == 401


def test_without_a_session_nothing_is_shown(browser: Browser) -> None:
    browser.session = ""
    for name in ("state", "node", "pod", "match"):
        answer = browser.ask(name)
        assert answer.status == 401 and b"up --ui" in answer.body


def test_a_session_opens_nothing_but_the_page(browser: Browser) -> None:
    browser.login()
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/secrets", "/metrics"):
        assert browser.ask(path).status == 403, path


def test_the_oldest_session_ends_where_there_are_too_many(browser: Browser) -> None:
    browser.login()
    oldest = browser.session
    for _ in range(pages.SESSIONS_MAX):
        browser.login()
    assert browser.ask("state", bearer=oldest).status == 401
    assert browser.ask("state").status == 200


def test_it_follows_the_cluster(browser: Browser) -> None:
    browser.login()
    first = browser.json("state", since="0")
    assert first["all"] and sorted(row[0] for row in first["nodes"]) == ["node-0", "node-1", "node-2"]
    assert first["store"]["raft_term"] >= 1
    browser.cluster.request("POST", "/api/v1/namespaces/default/pods", orjson.dumps(POD))
    browser.cluster.advance(5)
    then = browser.json("state", since=str(first["sequence"]))
    assert not then["all"] and then["totals"]["running"] == 1
    (used,) = {row[0]: row[5]["cpu"][0] for row in then["nodes"] if row[5]["cpu"][0]}.items()
    pod = browser.json("pod", key="default/p")
    assert (used[0], used[1]) == (pod["node"], 1000)
    moments = pod["moments"]
    assert pod["phase"] == "Running" and set(moments) == {*LIFE, "attempted"}
    assert [moments[each] for each in LIFE] == sorted(moments[each] for each in LIFE)
    explained, decision = pod["explained"], pod["explained"]["decision"]
    assert explained["node"] == decision["node"] == explained["nodes"][0]["node"] == pod["node"]
    assert decision["fits"] == decision["of"] == 3
    assert "NodeResourcesFit" in {each["plugin"] for each in decision["scores"]}
    assert browser.json("node", name=pod["node"])["pods"][0][:2] == ["default/p", "Running"]
    found = browser.json("match", where="free.cpu>=0")["names"]
    assert len(found) == 3
    refused = browser.ask("match", where="free.cpu>=!")
    assert refused.status == 400 and b"free.cpu" in refused.body
    assert browser.ask("pod", key="default/none").status == browser.ask("node", name="none").status == 404
    assert browser.ask("state", since="x").status == 400


def test_an_answer_waits_for_a_change(browser: Browser) -> None:
    browser.login()
    number = str(browser.json("state", since="0")["sequence"])
    before_ns = browser.cluster.now_ns
    assert browser.json("state", since=number)["nodes"] == []
    waited_s = (browser.cluster.now_ns - before_ns) / 1e9
    assert pages.BETWEEN_S <= waited_s <= pages.BETWEEN_S + pages.WAIT_MAX_S


def test_nothing_is_watched_when_nobody_looks(browser: Browser) -> None:
    def watchers() -> float:
        found = browser.cluster.plane.core.metrics()
        return sum(value for name, value in found.items() if name.startswith("apiserver_registered_watchers"))

    browser.login()
    browser.cluster.advance(pages.IDLE_S + 1)
    before = watchers()
    number = browser.json("state", since="0")["sequence"]
    assert watchers() == before + 2
    browser.cluster.advance(pages.IDLE_S + 1)
    assert watchers() == before
    again = browser.json("state", since=str(number))
    assert again["all"], "a page that comes back is sent everything"


def test_the_chosen_node_comes_first_though_others_rank_higher_now() -> None:
    """With more nodes than the table has rows, too: a pod on a node that then fills is still shown with its own."""
    with VirtualCluster("page of a full node", nodes=pages.RANKED + 4) as cluster:
        crowded = Browser(cluster)
        crowded.login()
        crowded.json("state", since="0")
        send(cluster, "first")
        where = crowded.json("pod", key="default/first")["node"]
        for number in range(3):
            send(cluster, f"beside-{number}", cpu="8", node=where)
        pod = crowded.json("pod", key="default/first")
        listed = [each["node"] for each in pod["explained"]["nodes"]]
        assert len(listed) == pages.RANKED and listed[0] == where not in pod["explained"]["best"]
        assert pod["explained"]["decision"]["node"] == where
        cluster.run(crowded.page.stop)


def test_of_a_waiting_pod_every_group_of_nodes_is_told_with_its_reason(browser: Browser) -> None:
    browser.login()
    browser.json("state", since="0")
    cordon = orjson.dumps({"spec": {"unschedulable": True}})
    browser.cluster.request("PATCH", "/api/v1/nodes/node-1", cordon, content_type=MERGE)
    send(browser.cluster, "too-large", cpu="2000")
    pod = browser.json("pod", key="default/too-large")
    changes = pod["explained"]["changes"]
    assert (pod["node"], pod["explained"]["decision"]["node"]) == ("", "")
    assert "0/3 nodes are available" in pod["explained"]["decision"]["message"]
    assert {(each["nodes"], each["reason"]) for each in changes} == {
        (2, "Insufficient cpu"), (1, "node(s) were unschedulable")
    }  # fmt: skip
    assert all(each["change"] for each in changes)
    moments = pod["moments"]
    assert list(moments) == ["created", "refused"] and moments["created"] <= moments["refused"]


def test_nodes_come_with_the_label_that_groups_them(browser: Browser) -> None:
    browser.login()
    rack = orjson.dumps({"metadata": {"labels": {"example.com/rack": "r1"}}})
    browser.cluster.request("PATCH", "/api/v1/nodes/node-2", rack, content_type=MERGE)
    browser.cluster.advance(1)
    state = browser.json("state", since="0", group="example.com/rack")
    assert {row[0]: row[1] for row in state["nodes"]} == {"node-0": "", "node-1": "", "node-2": "r1"}
    assert "example.com/rack" in state["labels"] and "kubernetes.io/hostname" in state["labels"]
    assert state["labels"].index("example.com/rack") < state["labels"].index("kubernetes.io/hostname")
    assert all(row[1] == row[0] for row in browser.json("state", since="0", group="kubernetes.io/hostname")["nodes"])


def test_the_store_tells_of_its_members_and_elections(browser: Browser) -> None:
    browser.login()
    store = browser.json("state", since="0")["store"]
    assert (store["raft_members"], store["raft_leaders_seen_total"], store["raft_lag_entries"]) == (1, 1, 0)


MERGE = "application/merge-patch+json"


def send(cluster: VirtualCluster, name: str, cpu: str = "1", node: str = "") -> None:
    requests = {"requests": {"cpu": cpu}}
    spec = {"containers": [{"name": "c", "image": "i", "resources": requests}], **({"nodeName": node} if node else {})}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.request("POST", "/api/v1/namespaces/default/pods", orjson.dumps(pod))
    cluster.advance(5)
