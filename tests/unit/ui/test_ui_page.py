"""The page over the API server's core, in virtual time: who may see what, and what is watched when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import PAGE, Request, Response
from minikube_py.apiserver.rules import AUTHENTICATED, MASTERS, User
from minikube_py.client.informer import Informer
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.ui import page as pages
from minikube_py.ui.page import Page
from minikube_py.ui.view import View

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
        secrets = iter(f"secret-{number}" for number in count())
        self.page = core.page = Page(core, cluster.clock, cluster.new_rng(), lambda: next(secrets))
        self.session = ""

    def ask(
        self, path: str, method: str = "GET", bearer: str = "", wanted: User | None = None, **query: str
    ) -> Response:
        asked = Request(method, path if path[:1] == "/" else PAGE + path, query, wanted=wanted)
        return self._handle(asked, bearer or self.session)

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
    as_admin(browser)
    answer = browser.ask("link", bearer="of-the-kubeconfig")
    assert answer.status == 200
    code = answer.body.decode().strip().removeprefix(f"{PAGE}#")
    assert browser.ask("login", "POST", code).status == 200
    assert browser.ask("login", "POST", code).status == 401


def as_admin(browser: Browser) -> str:
    browser.cluster.plane.core.access.authenticator.add("of-the-kubeconfig", ADMIN)
    return "of-the-kubeconfig"


def test_only_get_makes_a_link(browser: Browser) -> None:
    admin = as_admin(browser)
    for method in ("HEAD", "POST", "PUT", "PATCH", "DELETE"):
        assert browser.ask("link", method, admin).status == 405, method


def test_whom_an_administrator_plays_decides(browser: Browser) -> None:
    admin, nobody = as_admin(browser), User("nobody", (AUTHENTICATED,))
    assert browser.ask("link", bearer=admin, wanted=nobody).status == 403
    assert browser.ask("link", bearer=admin, wanted=User("another", (MASTERS, AUTHENTICATED))).status == 200
    browser.login()
    assert browser.ask("state", wanted=nobody).status == 403, "a session plays nobody"
    assert browser.ask("state", bearer=admin, wanted=User("minikube-py:page")).status == 403, "and nobody a session"


def test_unused_links_are_few_and_end_after_an_hour(browser: Browser) -> None:
    codes = [browser.page.link().partition("#")[2] for _ in range(pages.LINKS_MAX + 1)]
    assert browser.ask("login", "POST", codes[0]).status == 401, "the oldest ended"
    assert browser.ask("login", "POST", codes[1]).status == 200
    browser.cluster.advance(pages.LINK_LIFE_S - 60)
    assert browser.ask("login", "POST", codes[2]).status == 200
    browser.cluster.advance(120)
    for code in codes[3:]:
        refused = browser.ask("login", "POST", code)
        assert refused.status == 401 and b"within an hour" in refused.body
        assert browser.cluster.plane.core.access.authenticator.known(f"Bearer {code}") is None
    browser.login()


def test_without_a_session_nothing_is_shown(browser: Browser) -> None:
    browser.session = ""
    for name in ("state", "node", "pod", "match"):
        answer = browser.ask(name)
        assert answer.status == 401 and b"up --ui" in answer.body


TO_ALL = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "to-all"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": AUTHENTICATED}],
}  # fmt: skip


def test_a_session_or_a_code_opens_nothing_but_the_page(browser: Browser) -> None:
    """Not even what every authenticated user, or everybody, may read."""
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    browser.cluster.request("POST", bindings, orjson.dumps(TO_ALL))
    browser.login()
    code = browser.page.link().partition("#")[2]
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    paths = (
        "/api/v1/pods",
        "/api/v1/namespaces/default/secrets",
        "/metrics",
        "/api",
        "/apis",
        "/openapi/v3",
        "/version",
    )
    for bearer in (browser.session, code):
        for path in (*paths, "/healthz", bindings):
            assert browser.ask(path, bearer=bearer).status == 403, path
        assert browser.ask(reviews, "POST", bearer).status == 403
    browser.cluster.request("DELETE", f"{bindings}/to-all")


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


def watchers(browser: Browser) -> float:
    found = browser.cluster.plane.core.metrics()
    return sum(value for name, value in found.items() if name.startswith("apiserver_registered_watchers"))


def test_nothing_is_watched_when_nobody_looks(browser: Browser) -> None:
    browser.login()
    browser.cluster.advance(pages.IDLE_S + 1)
    before = watchers(browser)
    number = browser.json("state", since="0")["sequence"]
    assert watchers(browser) == before + 2
    browser.cluster.advance(pages.IDLE_S + 1)
    assert watchers(browser) == before
    again = browser.json("state", since=str(number))
    assert again["all"], "a page that comes back is sent everything"


def test_what_a_hidden_page_forgets_is_what_the_docs_say(browser: Browser) -> None:
    browser.login()
    browser.json("state", since="0")
    send(browser.cluster, "seen")
    assert "created" in browser.json("pod", key="default/seen")["moments"]
    assert browser.json("state", since="0")["latency_s"]
    browser.cluster.advance(pages.IDLE_S + 1)
    assert not {"created", "bound", "running"} & {*browser.json("pod", key="default/seen")["moments"]}
    assert browser.json("state", since="0")["latency_s"] == {}
    told = (Path(__file__).parents[3] / "docs/how-to/live-page.md").read_text(encoding="utf-8")
    assert " ".join(told.split()).count(f"hidden for more than {pages.IDLE_S:.0f} seconds") == 1
    assert f"hidden (another tab) for more than {pages.IDLE_S:.0f} seconds" in " ".join(told.split())


def test_watches_are_of_no_request(browser: Browser) -> None:
    """The first question is cancelled during the first lists: its watches serve the next one, and end."""
    browser.login()
    browser.cluster.advance(pages.IDLE_S + 1)
    before = watchers(browser)

    async def cancelled() -> None:
        user = browser.cluster.plane.core.access.authenticator.known(f"Bearer {browser.session}")
        asked = Request("GET", f"{PAGE}state", {"since": "0"}, user=user)
        task = asyncio.ensure_future(browser.cluster.plane.core.handle(asked))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    browser.cluster.run(cancelled)
    browser.cluster.advance(pages.IDLE_S + 1)
    assert watchers(browser) == before, "nobody looked any longer"
    browser.cluster.run(cancelled)
    created = browser.json("state", since="0")["totals"]["created"]
    send(browser.cluster, "after-a-cancelled-look")
    assert browser.json("state", since="0")["totals"]["created"] == created + 1


def test_a_look_while_the_watches_end_shows_everything(browser: Browser) -> None:
    browser.login()
    browser.json("state", since="0")
    informers = browser.page._informers

    async def ends() -> Any:
        user = browser.cluster.plane.core.access.authenticator.known(f"Bearer {browser.session}")
        ending = asyncio.ensure_future(browser.page._forget(informers))
        await asyncio.sleep(0)
        answer = await browser.cluster.plane.core.handle(Request("GET", f"{PAGE}state", {"since": "0"}, user=user))
        await ending
        return orjson.loads(answer.body)

    shown = browser.cluster.run(ends)
    assert len(shown["nodes"]) == 3
    send(browser.cluster, "afterwards")
    assert browser.json("state", since="0")["totals"]["created"] == 1


def test_a_first_list_that_takes_long_is_asked_for_again(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.login()
    browser.cluster.advance(pages.IDLE_S + 1)
    held = asyncio.Event()

    async def never(self: Informer[Any]) -> None:
        await held.wait()

    with monkeypatch.context() as patched:
        patched.setattr(Informer, "wait_synced", never)
        answer = browser.ask("state", since="0")
        assert answer.status == 503 and b"still being listed" in answer.body
    assert len(browser.json("state", since="0")["nodes"]) == 3


def test_answers_are_made_one_at_a_time_and_in_slices(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.login()
    browser.json("state", since="0")
    made: list[str] = []

    def rows(view: View, names: list[str], label: str) -> list[Any]:
        made.extend(names)
        return []

    async def sleep(delay_s: float) -> None:
        made.append("turn")
        await asyncio.sleep(delay_s)

    async def many() -> None:
        core = browser.cluster.plane.core
        user = core.access.authenticator.known(f"Bearer {browser.session}")
        asked = [Request("GET", f"{PAGE}state", {"since": "0"}, user=user) for _ in range(3)]
        answers = await asyncio.gather(*map(core.handle, asked))
        assert all(orjson.loads(answer.body)["nodes"] == [] for answer in answers)

    monkeypatch.setattr(pages, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    monkeypatch.setattr(pages, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(View, "rows", rows)
    browser.cluster.run(many)
    assert made == 3 * [each for name in browser.page._view._latest for each in (name, "turn")]


def test_names_left_out_are_said_to_be(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.login()
    assert browser.json("match", where="free.cpu>=0")["more"] is False
    monkeypatch.setattr(pages, "MATCHED_MAX", 2)
    found = browser.json("match", where="free.cpu>=0")
    assert len(found["names"]) == 2 and found["more"] is True


@pytest.mark.parametrize("since", ["", "-1", "1.5", "٣", "9" * 19, "0x1", "1e3", " 1", "\x00"])
def test_a_number_that_is_none_is_refused(browser: Browser, since: str) -> None:
    browser.login()
    assert browser.ask("state", since=since).status == 400


@pytest.mark.parametrize(
    "text", ["", "../..", "%2e%2e%2f", "default/none?limit=1", "\x00\ud7ff", "a" * 100_000, "=x", "<b>"]
)
def test_names_and_selectors_of_others_are_only_looked_up(browser: Browser, text: str) -> None:
    browser.login()
    assert browser.ask("node", name=text).status == browser.ask("pod", key=text).status == 404
    assert browser.ask("match", where=text).status == (400 if text else 200)
    state = browser.json("state", since="0", group=text)
    assert all(row[1] == "" for row in state["nodes"])


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
