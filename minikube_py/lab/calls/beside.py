"""`minikube-py lab calls --beside-upstream`: the same density run on upstream, with a recording proxy before its etcd.

tools/upstream of the source checkout runs etcd, then the control plane on the proxy. The proxy's counts are compared
with etcd's and kube-apiserver's own counters, and with our recording, call by call per pod.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from minikube_py.api.protobuf import ProtobufError, decode_message, open_envelope
from minikube_py.api.schema import SCHEMA
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.config import ControlPlaneConfig, Step
from minikube_py.control_plane.errors import SetupError
from minikube_py.env import Clock, SystemClock
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.kv import OPS_MAX, range_of, tree_of, txn_of
from minikube_py.etcd.messages import BY_NAME
from minikube_py.etcd.schema import Method
from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab import metrics
from minikube_py.lab.calls.etcd_proxy import EtcdProxy
from minikube_py.lab.calls.recorder import Recorder
from minikube_py.lab.calls.shapes import Shape, name_of, range_shape, resource_of, txn_shape, watch_shape
from minikube_py.lab.cluster import Cluster
from minikube_py.lab.environment import describe
from minikube_py.lab.load import LoadError
from minikube_py.lab.nodes import wait_ready
from minikube_py.mvcc.types import Put, Txn

LAYOUT: Final = "upstream: etcd, kube-apiserver, scheduler, controllers, kwok; proxy and load in one more process"
ROLE: Final = "kube-apiserver"
SCRIPT: Final = Path(__file__).parents[3] / "tools" / "upstream"
PARTS: Final = ("--scheduler", "--controllers", "--kubelets")
CREATES: Final = 16
_OWN_NAMES: Final = {"minions": "nodes"}


class UpstreamRecording:
    """The proxied calls in the recorder's terms: Kubernetes' etcd operations are named as ours."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.methods: Counter[str] = Counter()
        """Requests that etcd answered, with any result."""
        self.given_up: Counter[str] = Counter()
        """Those that the client no longer waited for: etcd may have handled them."""
        self._pods: dict[str, tuple[bool, bool]] = {}
        """By pod key, whether it has a node, and whether it runs."""

    def answered(self, method: Method, request: bytes, answer: bytes | None, sent_s: float, outcome: str) -> None:
        (self.given_up if outcome == "given up" else self.methods)[method.short] += 1
        shape, resource, name = self._described(method, BY_NAME[method.request].FromString(request))
        if outcome == "done" and method.short == "KV/Txn":
            outcome = "done" if BY_NAME[method.response].FromString(answer).succeeded else "compared in vain"
        self._count(shape, resource, name, sent_s, outcome)

    def streamed(self, method: Method, message: bytes, *, to_etcd: bool) -> None:
        if method.short != "Watch/Watch":
            return
        now_s = self.recorder.clock.monotonic_s()
        read = BY_NAME[method.request if to_etcd else method.response].FromString(message)
        if not to_etcd:
            self.recorder.events["from the store: batches"] += bool(read.events)
            self.recorder.events["from the store: events"] += len(read.events)
            return
        kind = read.WhichOneof("request_union")
        if kind == "create_request":
            asked = read.create_request
            shape = watch_shape(asked.key, asked.range_end, asked.start_revision, False)
            self._count(shape, _resource(asked.key), "", now_s, "done")
        else:
            name = str(kind).removesuffix("_request")
            self._count(Shape("watch", name), resource_of(b"/registry/"), "", now_s, "done")

    def _described(self, method: Method, request: Any) -> tuple[Shape, str, str]:
        try:
            if method.short == "KV/Range":
                return range_shape(range_of(request)), _resource(request.key), _one(request)
            if method.short == "KV/Txn":
                return self._txn(txn_of(tree_of(request), OPS_MAX))
        except Refused as error:
            return Shape(method.name.lower(), f"refused: {error}"), "", ""
        name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in method.name).lstrip("_")
        return Shape(name, name), resource_of(b"/registry/"), ""

    def _txn(self, txn: Txn) -> tuple[Shape, str, str]:
        keys = [each.key for each in (*txn.success, *txn.compare) if not isinstance(each, Txn)]
        key = keys[0] if keys else b"/registry/"
        purpose = ""
        for op in txn.success:
            if isinstance(op, Put) and op.key.startswith(b"/registry/pods/"):
                purpose = self._purpose(op)
        return txn_shape(txn.compare, txn.success, txn.failure, purpose), _resource(key), name_of(key)

    def _purpose(self, put: Put) -> str:
        """The purpose of a pod write: what it sets for the first time."""
        had_node, ran = self._pods.get(name_of(put.key), (False, False))
        pod = _pod(put.value)
        has_node = bool(pod.get("spec", {}).get("nodeName"))
        runs = pod.get("status", {}).get("phase") == "Running"
        self._pods[name_of(put.key)] = has_node, runs
        return "bind" if has_node and not had_node else "status" if runs and not ran else "other"

    def _count(self, shape: Shape, resource: str, name: str, sent_s: float, outcome: str) -> None:
        self.recorder.stored(shape, resource, (name,), ROLE, ROLE, sent_s, outcome)


def _pod(value: bytes) -> dict[str, Any]:
    """The pod as kube-apiserver stores it; empty for other bytes."""
    try:
        return decode_message(SCHEMA.message("core/v1.Pod"), open_envelope(value).raw)
    except ProtobufError:
        return {}


def _resource(key: bytes) -> str:
    found = resource_of(key)
    return _OWN_NAMES.get(found, found)


def _one(request: Any) -> str:
    return "" if request.range_end else name_of(request.key)


@dataclass(slots=True)
class Counted:
    """The programs' own counters since they started; filled after the run."""

    api_server: dict[str, float]
    """`etcd_request_duration_seconds_count` by operation and resource."""
    etcd_handled: dict[str, float]
    """`grpc_server_handled_total` by `Service/Method`, unary methods only."""
    etcd_mvcc: dict[str, float]
    proxied: dict[str, tuple[int, int]]
    """By method, the responses that the proxy had seen before reading etcd's counters, and those after it with the
    requests that clients gave up."""

    def disagreements(self) -> list[str]:
        """Methods for which etcd's count differs from the proxy's."""
        found = []
        for name in sorted({*self.proxied, *self.etcd_handled}):
            low, high = self.proxied.get(name, (0, 0))
            if not low <= self.etcd_handled.get(name, 0) <= high:
                found.append(f"{name}: {low} to {high} by the proxy, {self.etcd_handled.get(name, 0):.0f} by etcd")
        return found


class UpstreamRun:
    """Upstream behind a recording proxy."""

    def __init__(self, script: Path, clock: Clock | None = None) -> None:
        self._script = script
        self.clock = clock or SystemClock()
        self.recording = UpstreamRecording(Recorder(self.clock))
        self.counted = Counted({}, {}, {}, {})
        if not script.is_file():
            raise SetupError(f"{script}: no such file; upstream is run by tools/upstream of the source checkout")

    @asynccontextmanager
    async def cluster(self, shapes: Sequence[NodeSpec], results: Path, step: Step) -> AsyncIterator[Cluster]:
        """A cluster with all nodes Ready. Raises: SetupError, NodesNotReady, LoadError."""
        async with _running(self._script, "etcd") as etcd:
            url = etcd["etcd"][0]
            step("upstream", f"etcd on {url}")
            proxy = EtcdProxy(urlsplit(url).netloc, self.clock, self.recording)
            port = await proxy.start()
            try:
                asked = ("run", *PARTS, "--etcd", f"http://127.0.0.1:{port}")
                async with _running(self._script, *asked) as ready:
                    transport = HttpTransport(load_kubeconfig(Path(ready["kubeconfig"])))
                    try:
                        step("upstream", "kube-apiserver, scheduler, controllers and kwok on a proxy before it")
                        await _create_nodes(transport, shapes)
                        await wait_ready(transport, len(shapes))
                        config = ControlPlaneConfig(results, shapes=tuple(shapes))
                        yield Cluster(transport, self.clock, describe(results, LAYOUT), config, LAYOUT)
                        await self._take_counters(url, transport)
                    finally:
                        await transport.close()
            finally:
                await proxy.stop()

    async def _take_counters(self, url: str, transport: ApiTransport) -> None:
        before = dict(self.recording.methods)
        async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
            etcd = metrics.parse(await answer.text())
        after = self.recording.methods + self.recording.given_up
        for (name, labels), value in etcd.items():
            label = dict(labels)
            if name == "grpc_server_handled_total" and label["grpc_type"] == "unary" and value:
                key = f"{label['grpc_service'].rpartition('.')[2]}/{label['grpc_method']}"
                self.counted.etcd_handled[key] = self.counted.etcd_handled.get(key, 0) + value
            elif "_mvcc_" in name and name.endswith("_total") and not labels:
                self.counted.etcd_mvcc[name] = value
        self.counted.proxied = {name: (before.get(name, 0), count) for name, count in after.items()}
        for (name, labels), value in (await metrics.scrape(transport)).items():
            if name == "etcd_request_duration_seconds_count":
                label = dict(labels)
                self.counted.api_server[f"{label['operation']} {label.get('resource', label.get('type', ''))}"] = value


async def _create_nodes(transport: ApiTransport, shapes: Sequence[NodeSpec]) -> None:
    slots = asyncio.Semaphore(CREATES)

    async def create(shape: NodeSpec) -> None:
        async with slots:
            answer = await transport.request("POST", "/api/v1/nodes", body=orjson.dumps(_node(shape)))
        if answer.status != 201:
            raise LoadError(f"create of node {shape.name} answered {answer.status}")

    async with asyncio.TaskGroup() as group:
        for shape in shapes:
            group.create_task(create(shape))


def _node(shape: NodeSpec) -> Mapping[str, Any]:
    """For KWOK, which acts as the kubelet of every node and makes it Ready."""
    metadata = {"name": shape.name, "labels": {"kubernetes.io/hostname": shape.name, **shape.labels}}
    status = {"capacity": shape.capacity, "allocatable": shape.capacity}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}


@asynccontextmanager
async def _running(script: Path, *arguments: str) -> AsyncIterator[dict[str, Any]]:
    """The script's output once everything is ready. Raises: SetupError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), *arguments, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SetupError(f"upstream did not start: {script} {' '.join(arguments)}; see its messages above")
        yield json.loads(line)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
