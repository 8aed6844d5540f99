"""Explored tests never reach a cluster that they were not given: whatever a client package finds by itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from test_plugin import run

pytest_plugins = ("pytester",)
pytestmark = [pytest.mark.real_time("real sockets and threads"), pytest.mark.filterwarnings("default")]
TESTS = """
    import asyncio
    import os

    import kr8s
    import kubernetes
    import kubernetes_asyncio
    import lightkube
    import pytest

    def earlier():
        kubernetes.config.load_kube_config()
        asyncio.run(kubernetes_asyncio.config.load_kube_config())

    if os.environ["EARLIER"] == "yes":
        earlier()

    def names(core):
        return core.list_namespace(_request_timeout=1)

    async def by_asyncio(client=None):
        async with kubernetes_asyncio.client.ApiClient(client and await client()) as found:
            await kubernetes_asyncio.client.CoreV1Api(found).list_namespace(_request_timeout=1)

    async def loaded():
        await kubernetes_asyncio.config.load_kube_config()
        await by_asyncio()

    WAYS = {
        "loaded": lambda: names((kubernetes.config.load_kube_config(), kubernetes.client.CoreV1Api())[1]),
        "any": lambda: names((kubernetes.config.load_config(), kubernetes.client.CoreV1Api())[1]),
        "new": lambda: names(kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config())),
        "asyncio": lambda: asyncio.run(loaded()),
        "new of asyncio": lambda: asyncio.run(by_asyncio(kubernetes_asyncio.config.new_client_from_config)),
        "kr8s": lambda: kr8s.api().version(),
        "lightkube": lambda: lightkube.Client().request(lightkube.resources.core_v1.Namespace),
        "in a pod": lambda: os.environ["KUBERNETES_SERVICE_HOST"],
    }
    if os.environ["EARLIER"] == "yes":
        WAYS["default"] = lambda: names(kubernetes.client.CoreV1Api())
        WAYS["default of asyncio"] = lambda: asyncio.run(by_asyncio())

    @pytest.fixture
    def first():
        with pytest.raises(Exception):
            WAYS["loaded"]()

    @pytest.mark.parametrize("way", WAYS)
    def test_it(first, minikube, way):
        assert kubernetes.client.V1Pod(spec=kubernetes.client.V1PodSpec(containers=[])).spec.containers == []
        with pytest.raises(Exception) as raised:
            WAYS[way]()
        print(f"{way}: {raised.value!r}")
        program = minikube.program(lambda clients: WAYS[way]())
        minikube.advance(0.05)
        assert program.error is not None

    def test_after():
        assert os.environ["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
        kubernetes.config.load_kube_config()
"""


@pytest.fixture
def developers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests to a cluster of the developer's, which ~/.kube/config names."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = {"cluster": {"server": f"http://127.0.0.1:{server.server_port}"}, "name": "dev"}
    context = {"context": {"cluster": "dev", "user": "dev"}, "name": "dev"}
    user = {"name": "dev", "user": {"token": "t"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "dev"}
    (tmp_path / ".kube").mkdir()
    named = config | {"clusters": [place], "contexts": [context], "users": [user]}
    (tmp_path / ".kube" / "config").write_text(json.dumps(named))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    yield asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("exported", "earlier"), [(True, "no"), (False, "yes")])
def test_no_way_of_a_client_finds_the_developers_cluster(
    pytester: pytest.Pytester,
    developers: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    exported: bool,
    earlier: str,
) -> None:
    if exported:
        (tmp_path / ".kube" / "config").rename(tmp_path / "mine")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "mine"))
    monkeypatch.setenv("EARLIER", earlier)
    # In a process of its own: clients read where their configuration is when they are imported.
    del pytester.popen
    pytester.makepyfile(TESTS)
    result = run(pytester, "--minikube-seeds=1", "-rP", "--durations=4")
    result.assert_outcomes(passed=11 if earlier == "yes" else 9)
    assert developers == []
    result.stdout.fnmatch_lines(["loaded: *none: while a test is explored, clients come from minikube.client*"])
    if earlier == "yes":
        result.stdout.fnmatch_lines(["default: *while a test is explored, a client package has no default config*"])
