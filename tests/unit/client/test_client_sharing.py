"""What changes is decoded once for all who follow it in one process, and each finds in it what the others do."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from minikube_py.apiserver import watch_cache
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.inprocess import InProcessTransport
from minikube_py.client.fencing import FencedTransport
from minikube_py.client.informer import Informer, Selection
from minikube_py.client.rest import PODS as ALL_PODS
from minikube_py.client.rest import RestClient
from minikube_py.fields import decoded
from minikube_py.fields.decoded import KEPT_MAX, Decoded
from minikube_py.kubelet.pods import PodView, project_pod
from tests.support.api_core import MERGE, PODS, Core, pod


class Counted:
    """Stands for orjson in a module, and counts what it decodes."""

    def __init__(self, patched: pytest.MonkeyPatch, module: Any) -> None:
        self.bodies: list[bytes] = []
        patched.setattr(module, "orjson", SimpleNamespace(loads=self._loads))

    def _loads(self, body: bytes) -> Any:
        self.bodies.append(body)
        return orjson.loads(body)


async def test_informers_of_one_process_decode_an_event_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = await Core(tmp_path).start()
    transport = InProcessTransport(core.api, ADMIN)
    fenced = FencedTransport(transport, lambda: True, "work")
    followers: list[Informer[PodView]] = [
        Informer(
            RestClient(each), ALL_PODS, project_pod,
            clock=core.clock, rng=random.Random(1), selection=Selection(namespace=namespace), shares=True,
        )
        for each, namespace in ((transport, ""), (fenced, ""), (transport, "default"))
    ]  # fmt: skip
    for each in followers:
        each.start()
        await each.wait_synced()
    counted = Counted(monkeypatch, decoded)
    for number in range(20):
        await core.done("POST", PODS, pod(f"p{number}", cpu=f"{number + 1}m"))
    await core.clock.sleep(1.0)
    await core.done("PATCH", f"{PODS}/p3/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    await core.clock.sleep(1.0)
    assert len(counted.bodies) == 21
    wanted = await core.done("GET", PODS)
    views = {f"default/{obj['metadata']['name']}": repr(project_pod(obj)) for obj in wanted["items"]}
    for each in followers:
        assert {key: repr(view) for key, view in each.store.items()} == views
        await each.stop()
    await core.stop()


async def test_what_is_applied_is_decoded_once_for_tables_and_watch_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = await Core(tmp_path).start()
    counted = Counted(monkeypatch, decoded)
    await asyncio.gather(*(core.done("POST", PODS, pod(f"p{n}", labels={"n": str(n)})) for n in range(20)))
    assert counted.bodies == []
    for number in range(20):
        key = core.api.registry.resource("", "v1", "pods").key("default", f"p{number}")
        entry = next(cache for cache in core.api.cache.caches.values() if key in cache.entries).entries[key]
        seen = watch_cache.Entry(entry.resource, SimpleNamespace(key=key, value=entry.value, mod_revision=0))
        assert (entry.labels, entry.fields) == (seen.labels, seen.fields)
        assert entry.decoded and entry.labels == {"n": str(number)}
    await core.stop()


def test_what_nobody_asks_for_is_bounded() -> None:
    kept = Decoded()
    for number in range(3 * KEPT_MAX):
        assert kept(b'{"n":%d}' % number) == {"n": number} and len(kept._kept) <= KEPT_MAX
    assert kept.take(b'{"n":1}') == {"n": 1}
    kept.keep(b"", {"n": 2})
    assert kept(b"") is kept(b"") is kept.take(b"")
    for ask in (kept, kept.take):
        with pytest.raises(orjson.JSONDecodeError):
            ask(b"no json")
