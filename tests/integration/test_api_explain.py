"""Every kubectl reads our discovery and OpenAPI documents: explain, api-resources, api-versions."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from needs import kubectls, require_kubectls
from patience import PATIENCE_S

from minikube_py.api import discovery, openapi

PROTOCOLS = {"SCTP", "TCP", "UDP"}


pytestmark = pytest.mark.kubectl


@pytest.fixture(params=sorted(kubectls()) or [0], ids=lambda minor: f"kubectl.1.{minor}")
def kubectl(request: pytest.FixtureRequest) -> Path:
    return require_kubectls()[request.param]


async def answer(request: web.Request) -> web.Response:
    path, accept = request.path, request.headers.get("Accept")
    if path == "/version":
        return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
    tag = request.headers.get("If-None-Match")
    if path.startswith("/openapi"):
        found = openapi.document(path, accept, request.query.get("hash", ""), tag)
    else:
        found = discovery.document(path, accept, "127.0.0.1", tag)
    if found is None:
        return web.Response(status=404)
    told = {name: value.replace("\n", ", ") for name, value in found.headers.items()}
    headers = {**told, "Content-Type": found.content_type}
    return web.Response(status=found.status, body=found.body, headers=headers)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def run(kubectl: Path, url: str, home: Path, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(kubectl), "--server", url, *words,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_kubectl_explains(kubectl: Path, url: str, tmp_path: Path) -> None:
    pods = await run(kubectl, url, tmp_path, "explain", "pods")
    assert re.search(r"KIND: +Pod\nVERSION: +v1\n", pods)
    assert re.search(r"^ +spec\t<PodSpec>", pods, re.MULTILINE)
    containers = await run(kubectl, url, tmp_path, "explain", "pods.spec.containers")
    assert re.search(r"^FIELD: containers <\[\]Container>", containers, re.MULTILINE)
    assert re.search(r"^ +name\t<string> -required-", containers, re.MULTILINE)
    recursive = await run(kubectl, url, tmp_path, "explain", "nodes", "--recursive")
    assert re.search(r"^ +kubeletEndpoint\t<DaemonEndpoint>\n +Port\t<integer> -required-", recursive, re.MULTILINE)
    protocol = await run(kubectl, url, tmp_path, "explain", "services.spec.ports.protocol")
    assert set(re.findall(r"SCTP|TCP|UDP", protocol)) == PROTOCOLS
    older = await run(kubectl, url, tmp_path, "explain", "pods.spec.containers", "--output", "plaintext-openapiv2")
    assert re.search(r"^RESOURCE: containers <\[\]Object>", older, re.MULTILINE)
    assert re.search(r"^ +name\t<string> -required-", older, re.MULTILINE)
    lease = await run(kubectl, url, tmp_path, "explain", "leases.spec.renewTime")
    assert "GROUP:      coordination.k8s.io" in lease and "FIELD: renewTime <string>" in lease


async def test_kubectl_lists_resources(kubectl: Path, url: str, tmp_path: Path) -> None:
    resources = await run(kubectl, url, tmp_path, "api-resources", "-o", "wide")
    pods = next(line for line in resources.splitlines() if line.startswith("pods "))
    verbs = "create,delete,deletecollection,get,list,patch,update,watch"
    assert pods.split() == ["pods", "po", "v1", "true", "Pod", verbs, "all"]
    versions = await run(kubectl, url, tmp_path, "api-versions")
    assert {"v1", "coordination.k8s.io/v1"} <= set(versions.split())
