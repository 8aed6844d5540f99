# ruff: noqa: E501
"""What admission is shown of deletions, connections and reviews. Expected values: those of kube-apiserver 1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_core import MAPS, PODS, Core, config_map, pod

from minikube_py.apiserver.admission import Attributes, Chain, Plugin
from minikube_py.apiserver.webhooks import review_of

Json = dict[str, Any]
NAMESPACES = "/api/v1/namespaces"


class Records(Plugin):
    name = "ValidatingAdmissionWebhook"

    def __init__(self) -> None:
        self.seen: list[Json] = []

    async def validate(self, attributes: Attributes) -> None:
        self.seen.append(review_of(attributes, attributes.of.kind, "u"))


@pytest.fixture
def records(core: Core) -> Iterator[Records]:
    plugin = Records()
    core.api.writer.chain = Chain((plugin,))
    yield plugin


def options(records: Records) -> list[Json | None]:
    found = [each["options"] for each in records.seen if each["operation"] != "CREATE"]
    records.seen.clear()
    return [each and {name: value for name, value in each.items() if name not in ("kind", "apiVersion")} for each in found]


async def placed(core: Core, name: str, **spec: Any) -> str:
    made = pod(name)
    made["spec"] |= {"nodeName": "n", **spec}
    await core.done("POST", PODS, made)
    return f"{PODS}/{name}"


async def test_the_grace_that_a_pod_gets_is_shown(core: Core, records: Records) -> None:
    at = await placed(core, "a", terminationGracePeriodSeconds=70)
    await core.done("DELETE", at)
    assert options(records) == [{"gracePeriodSeconds": 70}]
    await core.done("DELETE", at)
    await core.done("DELETE", at, {"gracePeriodSeconds": 70})
    assert options(records) == [], "a deletion goes on that these cannot shorten"
    await core.done("DELETE", at, {"gracePeriodSeconds": -3})
    assert options(records) == [{"gracePeriodSeconds": 1}]
    events = await core.watch(PODS)
    await events.next()
    await core.done("DELETE", at, {"gracePeriodSeconds": 0})
    assert options(records) == [{"gracePeriodSeconds": 0}] * 2, "for the change, and for the deletion"
    told = [(kind, obj["metadata"]["deletionGracePeriodSeconds"]) for kind, obj in await events.take(2)]
    assert told == [("MODIFIED", 0), ("DELETED", 0)]
    events.close()


async def test_a_deletion_that_takes_the_last_finalizer_is_shown_twice(core: Core, records: Records) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["orphan"]
    await core.done("POST", MAPS, held)
    await core.done("DELETE", f"{MAPS}/held?propagationPolicy=Background")
    assert len(options(records)) == 2
    await core.done("POST", MAPS, config_map("free"))
    await core.done("DELETE", f"{MAPS}/free?propagationPolicy=Background")
    assert len(options(records)) == 1


async def test_a_collection_is_deleted_by_the_options_as_they_were_sent(core: Core, records: Records) -> None:
    await placed(core, "a")
    await core.done("DELETE", f"{PODS}?propagationPolicy=Background")
    assert options(records) == [{"propagationPolicy": "Background"}]


async def test_other_kinds_show_the_grace_that_was_asked_for(core: Core, records: Records) -> None:
    await core.done("POST", MAPS, config_map("a"))
    await core.done("DELETE", f"{MAPS}/a", {"gracePeriodSeconds": -3, "propagationPolicy": "Foreground"})
    assert options(records)[0] == {"gracePeriodSeconds": 1, "propagationPolicy": "Foreground"}


async def test_the_uid_of_a_namespace_is_a_precondition(core: Core, records: Records) -> None:
    made = await core.done("POST", NAMESPACES, {"metadata": {"name": "a"}})
    code, answer = await core.ask("DELETE", f"{NAMESPACES}/a", {"preconditions": {"uid": "x"}})
    why = f"Precondition failed: UID in precondition: x, UID in object meta: {made['metadata']['uid']}"
    assert (code, answer["message"]) == (409, f'Operation cannot be fulfilled on namespaces "a": {why}')
    await core.done("DELETE", f"{NAMESPACES}/a")
    assert options(records) == [{"preconditions": {"uid": made["metadata"]["uid"]}}]
    await core.done("DELETE", f"{NAMESPACES}/a?propagationPolicy=Orphan")
    assert options(records) == [], "its content is being deleted"


async def test_a_deletion_does_not_end_in_the_past(core: Core) -> None:
    at = await placed(core, "b", terminationGracePeriodSeconds=300)
    first = await core.done("DELETE", at)
    core.api.deleter._clock = _Later(core.clock.wall_s() + 200)  # type: ignore[assignment]
    second = await core.done("DELETE", at, {"gracePeriodSeconds": 100})
    assert second["metadata"]["deletionGracePeriodSeconds"] == 1
    assert first["metadata"]["deletionTimestamp"] > second["metadata"]["deletionTimestamp"]


class _Later:
    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def wall_s(self) -> float:
        return self._wall_s


async def test_a_deletion_without_orphans_that_is_not_over_is_accepted(core: Core) -> None:
    at = await placed(core, "a")
    assert (await core.ask("DELETE", f"{at}?orphanDependents=false"))[0] == 202
    assert (await core.ask("DELETE", f"{at}?gracePeriodSeconds=0&orphanDependents=false"))[0] == 200


async def test_a_connection_has_no_options(core: Core, records: Records) -> None:
    at = await placed(core, "a")
    await core.ask("POST", f"{at}/exec?command=sh&stdout=true")
    assert options(records) == [None]


async def test_a_review_has_the_namespace_of_its_path(core: Core, records: Records) -> None:
    at = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    spec = {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    await core.done("POST", at, {"spec": spec})
    assert records.seen[-1]["object"]["metadata"] == {"namespace": "default"}
    assert (await core.ask("POST", at, {"metadata": {"namespace": "other"}, "spec": spec}))[0] == 400
    assert len(records.seen) == 1, "refused before it is shown"


async def test_an_eviction_of_the_older_version_is_accepted(core: Core) -> None:
    for number, version in enumerate(("policy/v1beta1", "policy/v1")):
        at = await placed(core, f"p{number}")
        eviction = {"apiVersion": version, "kind": "Eviction", "metadata": {"name": f"p{number}"}}
        assert (await core.ask("POST", f"{at}/eviction", eviction))[0] == 201, version
    other = {**eviction, "apiVersion": "policy/v1alpha1"}
    assert (await core.ask("POST", f"{at}/eviction", other))[0] == 400


async def test_an_apply_of_a_repeated_key_is_warned_of(core: Core) -> None:
    body = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: "1", a: "2"}\n'
    for query in ("", "&fieldValidation=Warn"):
        answer = await core.respond("PATCH", f"{MAPS}/a?fieldManager=f{query}", body, content_type="application/apply-patch+yaml")
        assert answer.status < 300 and answer.headers["Warning"] == '299 - "line 4: key \\"a\\" already set in map"'

