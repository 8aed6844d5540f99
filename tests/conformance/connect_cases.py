"""What is refused of connections into pods, of their logs and of what is proxied to them: drawn scripts.

Upstream has no kubelet here, so the pods are bound to no node: what a kubelet would say is not compared.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from asking import Ask
from hypothesis import strategies as st

_IN = "/api/v1/namespaces/default"
_CONTAINERS = ("", "c0", "c1", "init", "nope", "C%")
_FLAGS = ("", "true", "false", "0", "1", "False", "x")
_NUMBERS = ("", "0", "1", "-1", "01", "+3", "9223372036854775807", "9223372036854775808", "1.0", "x", "٣")
_TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+02:00")
_HALF_UPGRADES: tuple[tuple[tuple[str, str], ...], ...] = (
    (), (), (("Upgrade", "SPDY/3.1"),), (("Connection", "keep-alive"),),
)  # fmt: skip
_TARGETS = ("{}", "{}:80", "{}:web", "{}:81", "https:{}:80", "ftp:{}:80", ":80", "a:b:c:d")
_CONNECTING = ("exec", "attach", "portforward")
_FLAG_NAMES = ("stdin", "stdout", "stderr", "tty")


@st.composite
def _query(draw: st.DrawFn, sub: str) -> str:
    pairs: list[tuple[str, str]] = []
    if draw(st.booleans()):
        pairs.append(("container", draw(st.sampled_from(_CONTAINERS))))
    if sub == "log":
        names = st.sampled_from(("tailLines", "sinceSeconds", "limitBytes"))
        pairs += [(name, draw(st.sampled_from(_NUMBERS))) for name in draw(st.lists(names, max_size=3))]
        flags = ("follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend")
        if draw(st.integers(0, 3)) == 0:
            pairs.append(("sinceTime", draw(st.sampled_from(_TIMES))))
    else:
        flags = _FLAG_NAMES
        pairs += [("command", each) for each in draw(st.lists(st.sampled_from(("sh", "-c", "")), max_size=2))]
        pairs += [("ports", draw(st.sampled_from(("80", "0", "65536", "x", ""))))] if sub == "portforward" else []
    chosen = draw(st.lists(st.sampled_from(flags), max_size=2, unique=True))
    pairs += [(name, draw(st.sampled_from(_FLAGS))) for name in chosen]
    return f"?{urlencode(pairs)}" if pairs else ""


@st.composite
def connections(draw: st.DrawFn, name: str) -> list[Ask]:
    """A pod that waits for a node, a service without pods, and what somebody asks of both and of others."""
    count = draw(st.integers(1, 2))
    containers = [{"name": f"c{number}", "image": "i", "ports": [{"containerPort": 80}]} for number in range(count)]
    spec: dict[str, Any] = {"containers": containers, "schedulerName": "nobody"}
    if draw(st.booleans()):
        spec["initContainers"] = [{"name": "init", "image": "i"}]
    service = {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80, "name": "web"}]}}
    asks = [
        Ask("pod to connect to", "POST", f"{_IN}/pods", {"metadata": {"name": name}, "spec": spec}),
        Ask("service to connect to", "POST", f"{_IN}/services", service),
    ]
    for _ in range(draw(st.integers(2, 5))):
        sub = draw(st.sampled_from((*_CONNECTING, "log", "log", "proxy")))
        who = draw(st.sampled_from((name, name, name, "absent")))
        if sub == "proxy":
            plural = draw(st.sampled_from(("pods", "services")))
            who = draw(st.sampled_from(_TARGETS)).format(who)
            path = f"{_IN}/{plural}/{who}/proxy{draw(st.sampled_from(('', '/', '/a/b', '/a//b')))}"
            method = draw(st.sampled_from(("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD")))
            asks.append(Ask(f"{plural} proxy", method, path))
            continue
        method = "GET" if sub == "log" else draw(st.sampled_from(("GET", "POST", "PUT", "DELETE")))
        headers = () if sub == "log" else draw(st.sampled_from(_HALF_UPGRADES))
        asks.append(Ask(f"pods {sub}", method, f"{_IN}/pods/{who}/{sub}{draw(_query(sub))}", headers=headers))
    return [
        *asks,
        Ask("pod gone", "DELETE", f"{_IN}/pods/{name}?gracePeriodSeconds=0"),
        Ask("service gone", "DELETE", f"{_IN}/services/{name}"),
    ]
