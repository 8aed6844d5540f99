"""What an upstream client does: range over all nodes of an etcd, or list them at a kube-apiserver; decode; compare."""

from __future__ import annotations

import base64
import http.client
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import upstream
from rivals.contract import LOGGED, Absent, Entry, Node, Question, batches
from rivals.https import Client
from rivals.objects import KUBE_PREFIX, PREFIX, fits, key_of, number_in, stored

PAGE = 500
NODE_KIND = {"kind": "Node", "apiVersion": "v1"}
TRIES = 1200


class Gateway:
    """etcd's own JSON gateway, for writes."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self._http = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        puts = [{"requestPut": {"key": _text(key), "value": _text(value)}} for key, value in pairs]
        self._http.request("POST", "/v3/kv/txn", orjson.dumps({"success": puts}), {"Content-Type": "application/json"})
        answer = self._http.getresponse()
        data = answer.read()
        assert answer.status == 200 and orjson.loads(data)["succeeded"], data[:300]

    def close(self) -> None:
        self._http.close()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Etcd:
    """Reads by etcdctl, the fastest available client: it prints each value as a line."""

    def __init__(self, url: str, etcdctl: Path) -> None:
        self._url, self._etcdctl = url, etcdctl
        self._gateway = Gateway(url)

    def load(self, nodes: Sequence[Node]) -> None:
        for batch in batches(nodes, 100):
            self._gateway.put_all([(key_of(i), stored(i, node)) for i, node in batch])

    def update(self, number: int, node: Node) -> None:
        self._gateway.put_all([(key_of(number), stored(number, node))])

    def first(self, question: Question, limit: int) -> Sequence[int]:
        return self._scan(question, limit)

    def every(self, question: Question) -> Sequence[int]:
        return self._scan(question, 0)

    def _scan(self, question: Question, limit: int) -> Sequence[int]:
        command = [str(self._etcdctl), "--endpoints", self._url, "get", "--prefix", PREFIX.decode()]
        found = []
        with tempfile.TemporaryFile() as out:
            subprocess.run([*command, "--print-value-only"], stdout=out, check=True)
            out.seek(0)
            for line in out:
                node = orjson.loads(line)
                if fits(node, question):
                    found.append(number_in(node))
                    if len(found) == limit:
                        break
        return found

    def close(self) -> None:
        self._gateway.close()


class KubeApiServer:
    """Filled through its etcd, which is faster; changed and queried through its API."""

    def __init__(self, client: Client, etcd_url: str) -> None:
        self._client, self._etcd_url = client, etcd_url

    def load(self, nodes: Sequence[Node]) -> None:
        gateway = Gateway(self._etcd_url)
        for batch in batches(nodes, 100):
            gateway.put_all([(key_of(i, KUBE_PREFIX), stored(i, node, NODE_KIND)) for i, node in batch])
        gateway.close()

    def update(self, number: int, node: Node) -> None:
        self._client.set_node(number, node)

    def first(self, question: Question, limit: int) -> Sequence[int]:
        """Page by page, until enough are found."""
        found: list[int] = []
        params = {"limit": str(PAGE)}
        while True:
            page = self._client.ask("GET", "/api/v1/nodes", params)
            found += [number_in(node) for node in page["items"] if fits(node, question)]
            token = page["metadata"].get("continue")
            if not token or len(found) >= limit:
                return found[:limit]
            params = {"limit": str(PAGE), "continue": token}

    def every(self, question: Question) -> Sequence[int]:
        listed = self._client.ask("GET", "/api/v1/nodes", {})["items"]
        return [number_in(node) for node in listed if fits(node, question)]


@contextmanager
def _running(*arguments: str) -> Iterator[dict[str, Any]]:
    try:
        with upstream.running(*arguments) as ready:
            yield ready
    except upstream.Absent as reason:
        raise Absent(str(reason)) from None


@contextmanager
def start_etcd() -> Iterator[Etcd]:
    with _running("etcd") as ready:
        etcd = Etcd(ready["etcd"][0], Path(ready["bin"], "etcdctl"))
        yield etcd
        etcd.close()


@contextmanager
def start_kube() -> Iterator[KubeApiServer]:
    with _running("run") as ready:
        client = Client(ready["url"], ready["token"])
        yield KubeApiServer(client, ready["etcd"][0])
        client.close()


def entries() -> list[Entry]:
    return [
        Entry("etcd 3.7: range, decode, filter", LOGGED[True], start_etcd, True),
        Entry("kube-apiserver 1.36: list, decode, filter", LOGGED[True], start_kube, True),
    ]
