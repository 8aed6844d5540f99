"""Every path that upstream's discovery names, and paths beside them, by every method: the verdicts of both servers.

Nothing is named that exists, and no body can be accepted: what is compared is who refuses first, and how.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import judging
import pytest
from asking import JSON, Answer, Ask, Server

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(600)]

EVERY = int(os.environ.get("MINIKUBE_PY_PATHS_EVERY", "6"))
"""One of so many pairs of path and method is asked; 1 asks all."""
SEED = int(os.environ.get("MINIKUBE_PY_JUDGE_SEED", "11"))
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO")
BODIES: dict[str, tuple[Any, str]] = {
    "POST": ({"kind": "Nope", "apiVersion": "nope/v1"}, JSON),
    "PUT": ({"kind": "Nope", "apiVersion": "nope/v1"}, JSON),
    "PATCH": ({"metadata": {"labels": {"a": 1}}}, "application/merge-patch+json"),
    "DELETE": ({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}, JSON),
}
PLAIN = (
    "/healthz", "/healthz/", "/healthz/ping", "/healthz/nope", "/livez/", "/livez/ping/", "/readyz/", "/version",
    "/version/", "/api", "/api/", "/apis/", "/apis/apps/", "/apis/nope", "/apis/apps/v9", "/api/v2", "/openapi",
    "/openapi/v3/api/v1?hash=ABC", "/nope", "/openid/v1/jwks", "/openid/v1/jwks/", "/.well-known/openid-configuration",
    "//api", "/api/v1//pods",
)  # fmt: skip


def _paths(server: Server) -> Iterator[str]:
    def found(path: str) -> Any:
        return json.loads(server.ask(Ask("discovery", "GET", path)).body)

    versions = ["/api/v1"]
    versions += [f"/apis/{v['groupVersion']}" for group in found("/apis")["groups"] for v in group["versions"]]
    for root in versions:
        yield from (root, f"{root}/", f"{root}/unknown", f"{root}/unknown/x", f"{root}/namespaces/default/unknown/x/y")
        for each in found(root)["resources"]:
            plural, _, part = each["name"].partition("/")
            within = f"{root}/namespaces/default" if each["namespaced"] else root
            if part:
                yield from (f"{within}/{plural}/nope/{part}", f"{within}/{plural}/nope/{part}/deeper")
                yield f"{within}/{plural}//{part}"
                continue
            elsewhere = root if each["namespaced"] else f"{root}/namespaces/default"
            one, other = f"{within}/{plural}", f"{elsewhere}/{plural}"
            yield from (one, f"{one}/", f"{one}/nope", f"{one}/nope/unknown", f"{one}/nope/status", f"{one}/nope/scale")
            yield from (f"{one}/nope/unknown/deeper", other, f"{other}/nope", f"{root}/proxy/{plural}/nope")
    yield from PLAIN


def _verdict(answer: Answer) -> dict[str, Any]:
    """Status, type and the error. What a GET shows when it is served is for others to compare."""
    told: dict[str, Any] = {"code": answer.code, "type": answer.headers.get("content-type")}
    told["cached"] = answer.headers.get("cache-control")
    if answer.code >= 400 and answer.body[:1] == b"{":
        status = json.loads(answer.body)
        told |= {name: status.get(name) for name in ("reason", "message", "details")}
    elif answer.code >= 400:
        told["text"] = answer.body
    return told


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Upstream and ours."""
    with judging.both() as found:
        yield found


def test_checks_of_health_are_those_of_upstream(servers: tuple[Server, Server]) -> None:
    report, (theirs, mine) = judging.Report(), servers
    for kind in ("healthz", "livez", "readyz"):
        listed = theirs.ask(Ask("list", "GET", f"/{kind}?verbose")).body.decode()
        names = re.findall(r"^\[\+\](\S+) ok$", listed, re.M)
        assert len(names) > 30
        some = "exclude=ping&exclude=nothing&exclude=log,etcd"
        for path in ("", "?verbose", f"?verbose&{some}", f"?{some}", "/nothing", *(f"/{name}" for name in names)):
            ask = Ask(kind, "GET", f"/{kind}{path}")
            report.take(ask, theirs.ask(ask), mine.ask(ask))
    assert not report.findings, report.text()
    assert report.rules == {"alive without a store": 2}


def test_every_path_answers_every_method_as_upstream(servers: tuple[Server, Server]) -> None:
    drawn, left = random.Random(SEED), []
    theirs, mine = servers
    pairs = [(method, path) for path in sorted(set(_paths(theirs))) for method in METHODS]
    asked = [pair for pair in pairs if pair[1] in PLAIN or drawn.randrange(EVERY) == 0]
    for method, path in asked:
        body, content_type = BODIES.get(method, (None, ""))
        # Clients that name no type they accept are many: Go's own, for one.
        ask = Ask("path", method, path, body, content_type, accept=drawn.choice((JSON, "", "*/*")))
        wanted, found = _verdict(theirs.ask(ask)), _verdict(mine.ask(ask))
        if wanted != found:
            left.append(f"{ask.shown()}\n    upstream: {wanted}\n    ours:     {found}")
    print(f"{len(asked)} requests of {len(pairs)}, {len(left)} differ")
    assert not left, "\n".join(left[:20])
