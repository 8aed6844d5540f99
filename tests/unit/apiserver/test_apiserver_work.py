# ruff: noqa: E501
"""Large requests are answered as small ones are, whoever works on them; and which are large is judged by counting."""

from __future__ import annotations

import pickle
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
import pytest_asyncio
import yaml
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.errors import StatusError, too_many_requests
from minikube_py.apiserver import work, writes
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.cached_cluster import CachedCluster
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_cache import DECODED_BYTES_MAX, WHOLE_BYTES_MAX, slices
from minikube_py.apiserver.work import INLINE_BYTES_MAX, INLINE_VALUES_MAX, is_large, is_large_patch
from tests.support.api_core import Core, pod
from tests.support.hostile import JSON, JSON_PATCH, NS, YAML, Hostile, bodies, prepare, small

VARYING = re.compile(rb'(uid|creationTimestamp|resourceVersion|deletionTimestamp)[\\\\":]+[^"\\\\]*|hostile-[a-z0-9]{5}|10[.]0[.][0-9.]+')
CASES = [*bodies(1500), *bodies(6000), *[one for one in small() if one.body]]
PLAIN = [
    Hostile("a map", "POST", f"{NS}/configmaps", b'{"metadata":{"name":"hostile"}}', undo=f"{NS}/configmaps/hostile"),
    Hostile("a generated name", "POST", f"{NS}/configmaps", b'{"metadata":{"generateName":"hostile-"}}'),
    Hostile("no name", "POST", f"{NS}/configmaps", b'{"metadata":{}}'),
    Hostile("a version", "POST", f"{NS}/configmaps", b'{"metadata":{"name":"a","resourceVersion":"5"}}'),
    Hostile("no namespace", "POST", "/api/v1/namespaces/none/configmaps", b'{"metadata":{"name":"a"}}'),
    Hostile("a bad map", "POST", f"{NS}/configmaps", b'{"metadata":{"name":"A_"}}'),
    Hostile("there already", "POST", f"{NS}/configmaps", b'{"metadata":{"name":"map-00001"}}'),
    Hostile("a service", "POST", f"{NS}/services", b'{"metadata":{"name":"hostile"},"spec":{"ports":[{"port":1}]}}', undo=f"{NS}/services/hostile"),
    Hostile("dry", "POST", f"{NS}/configmaps?dryRun=All", b'{"metadata":{"name":"hostile"}}'),
    Hostile("strict", "POST", f"{NS}/configmaps?fieldValidation=Strict", b'{"metadata":{"name":"hostile"},"x":1}'),
    Hostile("warned", "POST", f"{NS}/pods", orjson.dumps({**pod("hostile"), "x": 1, "y": 2}), undo=f"{NS}/pods/hostile?gracePeriodSeconds=0"),
    Hostile("an update", "PUT", f"{NS}/configmaps/map-00001", b'{"metadata":{"name":"map-00001"},"data":{"a":"c"},"x":1}'),
    Hostile("an update of nothing", "PUT", f"{NS}/configmaps/map-00001", b'{"metadata":{"name":"map-00001"},"data":{"a":"c"}}'),
    Hostile("an old version", "PUT", f"{NS}/configmaps/map-00001", b'{"metadata":{"name":"map-00001","resourceVersion":"1"}}'),
    Hostile("another name", "PUT", f"{NS}/configmaps/map-00001", b'{"metadata":{"name":"b"}}'),
    Hostile("absent", "PUT", f"{NS}/pods/absent", orjson.dumps(pod("absent"))),
    Hostile("made by an update", "PUT", "/api/v1/nodes/hostile", b'{"metadata":{"name":"hostile"}}', undo="/api/v1/nodes/hostile"),
    Hostile("immutable", "PUT", f"{NS}/pods/pod-00001", orjson.dumps({**pod("pod-00001"), "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})),
    Hostile("a patch of nothing", "PATCH", f"{NS}/configmaps/absent", b"{}", "application/merge-patch+json"),
    Hostile("a patch", "PATCH", f"{NS}/configmaps/map-00001", b'{"data":{"b":"c"},"x":1}', "application/merge-patch+json"),
    Hostile("a bad patch", "PATCH", f"{NS}/configmaps/map-00001", b'{"data":{"b":', "application/merge-patch+json"),
    Hostile("a status", "PATCH", f"{NS}/pods/pod-00001/status", b'{"status":{"phase":"Running"}}', "application/merge-patch+json"),
    Hostile("a deletion", "DELETE", f"{NS}/configmaps/absent", b'{"propagationPolicy":"Foreground","preconditions":{"uid":"x"}}'),
    Hostile("a deletion with a bad policy", "DELETE", f"{NS}/configmaps/map-00002", b'{"propagationPolicy":"x"}'),
    Hostile("a binding", "POST", f"{NS}/pods/pod-00003/binding", b'{"metadata":{"name":"pod-00003"},"target":{}}'),
    Hostile("an eviction", "POST", f"{NS}/pods/absent/eviction", b'{"metadata":{"name":"absent"}}'),
    Hostile("a review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", b'{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}'),
]  # fmt: skip


@pytest_asyncio.fixture
async def cores(tmp_path: Path) -> AsyncIterator[tuple[Core, Core]]:
    here, elsewhere = await Core(tmp_path / "a").start(), await Core(tmp_path / "b").start()
    for core in (here, elsewhere):
        await prepare(core.api, 5, 5, 0)
    yield here, elsewhere
    await here.stop()
    await elsewhere.stop()


async def ask(core: Core, one: Hostile, user: User = ADMIN) -> tuple[int, dict[str, str], bytes]:
    path, _, query = one.path.partition("?")
    asked = Request(one.method, path, parse_query(query), one.body, user, one.accept, one.content_type)
    response = await core.api.handle(asked)
    return response.status, dict(response.headers), VARYING.sub(b"", response.body)


async def test_what_is_worked_on_elsewhere_is_answered_as_here(
    cores: tuple[Core, Core], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for one in [*PLAIN, *CASES]:
        found = []
        for core, large in zip(cores, (False, True)):
            monkeypatch.setattr(writes, "is_large", lambda *given, large=large: large and bool(given[0]))
            monkeypatch.setattr(writes, "is_large_patch", lambda *given, large=large: large)
            found.append(await ask(core, one))
            if one.undo:
                await ask(core, Hostile("undo", "DELETE", one.undo))
        here, elsewhere = found
        assert elsewhere == here, one.name
    assert not caplog.records, caplog.text


BAD_LABELS = {"labels": {"not a label": "x"}}
FORBIDDEN_AND_INVALID = [
    Hostile("a pod", "POST", f"{NS}/pods", b'{"metadata":{"name":"hostile","labels":{"not a label":"x"}},"spec":{}}'),
    Hostile("a node", "POST", "/api/v1/nodes", orjson.dumps({"metadata": {"name": "other", **BAD_LABELS}})),
    Hostile("a node's update", "PUT", "/api/v1/nodes/node-1", orjson.dumps({"metadata": {"name": "node-1", **BAD_LABELS}})),
    Hostile("a node's patch", "PATCH", "/api/v1/nodes/node-1", orjson.dumps({"metadata": BAD_LABELS}), "application/merge-patch+json"),
]  # fmt: skip


async def test_what_a_kubelet_may_not_write_is_forbidden_before_it_is_invalid(
    cores: tuple[Core, Core], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = User("system:node:other-1", ("system:nodes", "system:authenticated"))
    for core in cores:
        made = await ask(core, Hostile("node", "POST", "/api/v1/nodes", b'{"metadata":{"name":"node-1"}}'))
        assert made[0] == 201, made
    for one in FORBIDDEN_AND_INVALID:
        found = []
        for core, large in zip(cores, (False, True)):
            monkeypatch.setattr(writes, "is_large", lambda *given, large=large: large and bool(given[0]))
            monkeypatch.setattr(writes, "is_large_patch", lambda *given, large=large: large)
            assert (await ask(core, one))[0] == 422, one.name
            found.append(await ask(core, one, kubelet))
        here, elsewhere = found
        assert elsewhere == here, one.name
        assert here[0] == 403, (one.name, here)


def test_cost_is_counted_in_bytes_and_values() -> None:
    assert not is_large(b"", JSON)
    assert not is_large(orjson.dumps(pod("a")), JSON)
    assert is_large(b"x" * (INLINE_BYTES_MAX + 1), JSON)
    assert is_large(b"[" * (INLINE_VALUES_MAX + 100), JSON)
    assert is_large(b"- a\n" * 1000, YAML) and is_large(b"k8s\0" + b"\x0a\0" * 2000, "application/vnd.kubernetes.protobuf")


@pytest.mark.parametrize("one", [one for one in bodies(64 << 10) if one.body], ids=lambda one: one.name)
def test_no_shape_of_a_large_body_is_worked_on_here(one: Hostile) -> None:
    if one.method == "PATCH":
        assert is_large_patch(one.body, one.content_type, b'{"metadata":{}}') or len(one.body) < 20_000
    else:
        assert is_large(one.body, one.content_type) or len(one.body) < 2000


def test_copies_count_for_what_they_may_become() -> None:
    copies = b'[{"op":"copy","from":"/data","path":"/data/a"}]'
    stored = b'{"metadata":{"name":"a"},"data":{"a":"b"}}'
    assert not is_large_patch(copies, JSON_PATCH, stored)
    many = b"[" + b",".join([copies[1:-1]] * 9) + b"]"
    assert is_large_patch(many, JSON_PATCH, stored)
    assert is_large_patch(many.replace(b"copy", b"c\\u006fpy"), JSON_PATCH, stored)
    assert is_large_patch(copies, JSON_PATCH, b"[" * 600)


def test_a_refusal_survives_its_way_from_another_process() -> None:
    error = too_many_requests("so many", 3)
    error.warnings = ("a", "b")
    found: Any = pickle.loads(pickle.dumps(error))
    assert isinstance(found, StatusError)
    assert (found.to_status(), found.warnings) == (error.to_status(), error.warnings)


async def test_small_requests_never_leave_the_loop(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nobody(work.WorkHere):
        async def run(self, job: str, *given: Any) -> Any:
            raise AssertionError(job)

    def packed(*_: Any) -> Any:
        raise AssertionError("what admission looks at was gathered for another process")

    core.api.writer.work = Nobody()
    monkeypatch.setattr(CachedCluster, "seen_by", packed)
    made = await core.done("POST", f"{NS}/pods", pod("a"))
    await core.done("PUT", f"{NS}/pods/a", made)
    await core.done("PATCH", f"{NS}/pods/a", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    await core.done("DELETE", f"{NS}/pods/a", {"gracePeriodSeconds": 0})


@given(st.lists(st.integers(0, 400_000), max_size=60), st.integers(1, 20), st.booleans())
def test_lists_are_made_in_parts_that_are_bounded(sizes: list[int], count_max: int, decoded: bool) -> None:
    entries: Any = [Sized(b"x" * size) for size in sizes]
    parts = list(slices(entries, count_max, decoded))
    assert [entry for part in parts for entry in part] == entries
    bytes_max = DECODED_BYTES_MAX if decoded else WHOLE_BYTES_MAX
    for part in parts:
        assert 1 <= len(part) <= count_max
        assert len(part) == 1 or sum(len(entry.value) for entry in part) <= bytes_max


class Sized(NamedTuple):
    value: bytes


async def test_large_answers_in_yaml_are_written_elsewhere(core: Core) -> None:
    asked: list[str] = []

    class Elsewhere(work.WorkHere):
        async def run(self, job: str, *given: Any) -> Any:
            asked.append(job)
            return await super().run(job, *given)

    core.api.hand_work_to(Elsewhere())
    for at in range(12):
        await core.done("POST", f"{NS}/configmaps", {"metadata": {"name": f"m{at}"}, "data": {"x": "y" * 3000}})
    small = await core.respond("GET", "/api/v1/namespaces/default", accept=YAML)
    assert small.body.startswith(b"apiVersion: v1\nkind: Namespace") and asked == []
    for path in (f"{NS}/configmaps/m1", f"{NS}/configmaps", f"{NS}/configmaps?limit=3"):
        answer = await core.respond("GET", path, accept=YAML)
        plain = await core.respond("GET", path)
        assert yaml.safe_load(answer.body) == orjson.loads(b"".join(plain.pieces or (plain.body,)))
    assert asked == ["as_yaml"] * 3
