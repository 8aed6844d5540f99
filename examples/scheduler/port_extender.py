"""A scheduler extender that grants a port of a network card by the bandwidth that a pod asks for.

    python examples/scheduler/port_extender.py --server http://127.0.0.1:8001 --port 8765

A node says by an annotation which ports it has, in Mbit/s: `example.com/ports: '{"eth0": 25000, "eth1": 100000}'`.
A pod asks for bandwidth by the resource `example.com/mbps`. Its whole share comes from one port: 30 Gbit/s do not fit a
node with two ports that have 20 left each, which no sum over the node can tell. The scheduler leaves the resource alone
(`ignoredByScheduler`), so no node has to report it. As it binds a pod, the extender writes the port into the pod's
annotation `example.com/port`; all that is granted is in the API server, so the extender may be restarted.

It speaks the protocol of k8s.io/kube-scheduler/extender/v1, and runs beside kube-scheduler just as well. It needs the
standard library alone.
"""

from __future__ import annotations

import argparse
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

RESOURCE, PORTS, PORT = "example.com/mbps", "example.com/ports", "example.com/port"
SCORE_MAX = 10
Json = dict[str, Any]


# --- what fits where: pure ------------------------------------------------------------------------------------------


def wanted(pod: Json) -> int:
    """In Mbit/s, of all containers."""
    requests = ((container.get("resources") or {}).get("requests") or {} for container in pod["spec"]["containers"])
    return sum(amount(each.get(RESOURCE, "0")) for each in requests)


def amount(quantity: str) -> int:
    """Of an extended resource: a whole number."""
    for suffix, factor in (("k", 10**3), ("M", 10**6)):
        if quantity.endswith(suffix):
            return int(quantity[:-1]) * factor
    return int(quantity)


def annotations(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def free_ports(node: Json, pods: Iterable[Json]) -> dict[str, int]:
    """What the ports of a node have left, given all pods."""
    free = {name: int(speed) for name, speed in json.loads(annotations(node).get(PORTS, "{}")).items()}
    for pod in pods:
        port = annotations(pod).get(PORT, "")
        over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if pod["spec"].get("nodeName") == node["metadata"]["name"] and port in free and not over:
            free[port] -= wanted(pod)
    return free


def best_port(free: Mapping[str, int], mbps: int) -> str | None:
    """The one that is left with least: wide ports stay whole for those who need them."""
    fitting = sorted((left, name) for name, left in free.items() if left >= mbps)
    return fitting[0][1] if fitting else None


def filtered(pod: Json, nodes: Iterable[Json], pods: list[Json]) -> Json:
    """ExtenderFilterResult. A node whose ports are all too slow is beyond the help of preemption."""
    passed, failed, never = [], {}, {}
    mbps = wanted(pod)
    for node in nodes:
        name = node["metadata"]["name"]
        if best_port(free_ports(node, pods), mbps) is not None:
            passed.append(name)
        elif best_port(free_ports(node, ()), mbps) is not None:
            failed[name] = f"no port with {mbps} Mbit/s left"
        else:
            never[name] = f"no port of {mbps} Mbit/s"
    return {"NodeNames": passed, "FailedNodes": failed, "FailedAndUnresolvableNodes": never}


def prioritized(pod: Json, nodes: Iterable[Json], pods: list[Json]) -> list[Json]:
    """HostPriorityList: the less the port has left afterwards, the better."""
    found, mbps = [], wanted(pod)
    for node in nodes:
        free, speeds = free_ports(node, pods), free_ports(node, ())
        port = best_port(free, mbps)
        score = SCORE_MAX - SCORE_MAX * (free[port] - mbps) // speeds[port] if port is not None else 0
        found.append({"Host": node["metadata"]["name"], "Score": score})
    return found


# --- the API server and the scheduler -------------------------------------------------------------------------------


class Api:
    """`token` and `insecure`: as a kubeconfig has them; a `kubectl proxy` needs neither."""

    def __init__(self, server: str, token: str = "", authority: Path | None = None) -> None:
        self._server, self._token = server.rstrip("/"), token
        self._context = ssl.create_default_context(cafile=authority) if server.startswith("https:") else None

    def call(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """Raises: HTTPError."""
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._server + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:
            found: Json = json.loads(answer.read())
            return found


class Extender:
    def __init__(self, api: Api) -> None:
        self._api = api
        # Two pods that are bound at once must not be granted the same bandwidth.
        self._binding = Lock()

    def handle(self, verb: str, args: Json) -> Any:
        if verb == "bind":
            with self._binding:
                return {"Error": self._bind(args)}
        nodes, pods = self._nodes(args), self._pods()
        decide = {"filter": filtered, "prioritize": prioritized}[verb]
        return decide(args["Pod"], nodes, pods)

    def _nodes(self, args: Json) -> list[Json]:
        """The scheduler sends names alone (nodeCacheCapable)."""
        names = set(args["NodeNames"])
        return [node for node in self._api.call("GET", "/api/v1/nodes")["items"] if node["metadata"]["name"] in names]

    def _pods(self) -> list[Json]:
        found: list[Json] = self._api.call("GET", "/api/v1/pods")["items"]
        return found

    def _bind(self, args: Json) -> str:
        """Grants a port, then binds; what is wrong, or "". A grant without a binding counts for nothing."""
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}"
        try:
            pod, node = self._api.call("GET", path), self._api.call("GET", f"/api/v1/nodes/{args['Node']}")
            port = best_port(free_ports(node, self._pods()), wanted(pod))
            if port is None:
                return f"node {args['Node']} has no port with {wanted(pod)} Mbit/s left"
            metadata = {"uid": args["PodUID"], "annotations": {PORT: port}}
            self._api.call("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")
            who = {"name": args["PodName"], "namespace": args["PodNamespace"], "uid": args["PodUID"]}
            target = {"kind": "Node", "name": args["Node"]}
            binding = {"kind": "Binding", "apiVersion": "v1", "metadata": who, "target": target}
            self._api.call("POST", f"{path}/binding", binding)
        except urllib.error.HTTPError as error:
            return str(json.loads(error.read() or b"{}").get("message") or error)
        return ""


def server(extender: Extender, port: int) -> ThreadingHTTPServer:
    """Listens on loopback; `serve_forever` answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            args = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                code, answer = 200, extender.handle(self.path.strip("/"), args)
            except KeyError:
                code, answer = 404, {}
            except OSError as error:
                code, answer = 500, {"Error": str(error)}
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            """The scheduler tells what it was answered."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="of the API server")
    parser.add_argument("--token-file", type=Path, help="with the token of a user who may bind pods")
    parser.add_argument("--authority", type=Path, help="the certificate authority of the API server, PEM")
    parser.add_argument("--port", type=int, default=8765, help="to listen on (default: 8765)")
    arguments = parser.parse_args()
    token = arguments.token_file.read_text().strip() if arguments.token_file else ""
    with server(Extender(Api(arguments.server, token, arguments.authority)), arguments.port) as listening:
        listening.serve_forever()


if __name__ == "__main__":
    main()
