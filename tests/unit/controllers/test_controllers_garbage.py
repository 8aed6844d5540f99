"""Garbage collection: background, foreground, orphan, blocked owners, absent owners; and pod GC."""

import pytest
from controller_world import World
from step_clock import settle

GC = "garbage-collector-controller"


def owned(w, plural, key, *owners, block=False, **parts):
    references = []
    for owner_plural, owner_key in owners:
        owner = w.api.kind(owner_plural)[owner_key]
        references.append(
            {
                "apiVersion": "v1",
                "kind": next(k.kind for k in w.api.objects if k.plural == owner_plural),
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": block,
            }
        )
    return w.api.make(plural, key, metadata={"ownerReferences": references, **parts.pop("metadata", {})}, **parts)


async def test_background_dependents_follow_their_owner_through_generations():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        owned(w, "secrets", "a/child", ("configmaps", "a/root"))
        owned(w, "services", "a/grandchild", ("secrets", "a/child"))
        await settle()
        w.api.remove("configmaps", "a/root")
        await w.clock.advance(2)
        assert not w.api.kind("secrets") and not w.api.kind("services")


async def test_an_object_stays_while_one_owner_is_left_and_loses_the_other_reference():
    async with World(GC) as w:
        for name in "xy":
            w.api.make("configmaps", f"a/{name}")
        owned(w, "secrets", "a/s", ("configmaps", "a/x"), ("configmaps", "a/y"))
        await settle()
        w.api.remove("configmaps", "a/x")
        await w.clock.advance(2)
        references = w.api.kind("secrets")["a/s"]["metadata"]["ownerReferences"]
        assert [reference["name"] for reference in references] == ["y"]
        w.api.remove("configmaps", "a/y")
        await w.clock.advance(2)
        assert not w.api.kind("secrets")


async def test_foreground_the_owner_waits_for_those_that_block_it():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        spec, status = {"nodeName": "n"}, {"phase": "Running"}
        owned(w, "pods", "a/p", ("configmaps", "a/root"), block=True, spec=spec, status=status)
        owned(w, "secrets", "a/loose", ("configmaps", "a/root"))
        await settle()
        w.api.remove("configmaps", "a/root", propagationPolicy="Foreground")
        await w.clock.advance(2)
        assert "a/root" in w.api.kind("configmaps") and "deletionTimestamp" in w.api.kind("pods")["a/p"]["metadata"]
        assert not w.api.kind("secrets")
        w.api.remove("pods", "a/p", gracePeriodSeconds=0)
        await w.clock.advance(2)
        assert not w.api.kind("configmaps")


async def test_foreground_does_not_wait_for_those_that_do_not_block():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        owned(w, "pods", "a/p", ("configmaps", "a/root"), spec={"nodeName": "n"}, status={"phase": "Running"})
        await settle()
        w.api.remove("configmaps", "a/root", propagationPolicy="Foreground")
        await w.clock.advance(2)
        assert not w.api.kind("configmaps") and "deletionTimestamp" in w.api.kind("pods")["a/p"]["metadata"]


async def test_foreground_goes_down_a_chain():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        owned(w, "secrets", "a/child", ("configmaps", "a/root"), block=True)
        owned(w, "pods", "a/p", ("secrets", "a/child"), block=True, spec={"nodeName": "n"}, status={"phase": "Running"})
        await settle()
        w.api.remove("configmaps", "a/root", propagationPolicy="Foreground")
        await w.clock.advance(2)
        assert "foregroundDeletion" in w.api.kind("secrets")["a/child"]["metadata"]["finalizers"]
        w.api.remove("pods", "a/p", gracePeriodSeconds=0)
        await w.clock.advance(2)
        assert not w.api.kind("secrets") and not w.api.kind("configmaps")


async def test_a_dependent_that_unblocks_lets_its_owner_go():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        owned(w, "secrets", "a/s", ("configmaps", "a/root"), block=True, metadata={"finalizers": ["keep"]})
        await settle()
        w.api.remove("configmaps", "a/root", propagationPolicy="Foreground")
        await w.clock.advance(2)
        assert "a/root" in w.api.kind("configmaps")
        metadata = w.api.kind("secrets")["a/s"]["metadata"]
        w.api.change("secrets", "a/s", metadata={k: v for k, v in metadata.items() if k != "ownerReferences"})
        await w.clock.advance(2)
        assert not w.api.kind("configmaps")


async def test_orphan_dependents_stay_without_their_reference():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        for name in "xy":
            owned(w, "secrets", f"a/{name}", ("configmaps", "a/root"), block=True)
        await settle()
        w.api.remove("configmaps", "a/root", propagationPolicy="Orphan")
        await w.clock.advance(2)
        assert not w.api.kind("configmaps") and len(w.api.kind("secrets")) == 2
        assert all(not s["metadata"].get("ownerReferences") for s in w.api.kind("secrets").values())


async def test_an_owner_of_another_uid_is_no_owner():
    async with World(GC) as w:
        w.api.make("configmaps", "a/root")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": "of an earlier one"}
        w.api.make("secrets", "a/s", metadata={"ownerReferences": [reference]})
        await w.clock.advance(2)
        assert not w.api.kind("secrets")


async def test_an_owner_in_another_namespace_is_no_owner():
    async with World(GC) as w:
        w.api.make("namespaces", "b")
        root = w.api.make("configmaps", "b/root")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
        w.api.make("secrets", "a/s", metadata={"ownerReferences": [reference]})
        await w.clock.advance(2)
        assert not w.api.kind("secrets")


async def test_a_cluster_scoped_owner_owns_in_all_namespaces():
    async with World(GC) as w:
        w.api.make("nodes", "n")
        owned(w, "leases", "a/l", ("nodes", "n"))
        await w.clock.advance(2)
        assert "a/l" in w.api.kind("leases")
        w.api.remove("nodes", "n")
        await w.clock.advance(2)
        assert not w.api.kind("leases")


async def test_a_cluster_scoped_object_with_a_namespaced_owner_stays():
    async with World(GC) as w:
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "gone"}
        w.api.make("nodes", "n", metadata={"ownerReferences": [reference]})
        await w.clock.advance(60)
        assert "n" in w.api.kind("nodes")


async def test_an_owner_of_an_unknown_kind_keeps_the_object():
    async with World(GC) as w:
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w"}
        w.api.make("secrets", "a/s", metadata={"ownerReferences": [reference]})
        await w.clock.advance(60)
        assert "a/s" in w.api.kind("secrets")


async def test_owners_that_went_while_nobody_watched():
    w = World(GC)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": "gone"}
    for number in range(5):
        w.api.make("secrets", f"a/{number}", metadata={"ownerReferences": [reference]})
    async with w:
        await w.clock.advance(2)
        assert not w.api.kind("secrets")
        asked = [path for method, path in w.api.calls if method == "GET" and path.endswith("configmaps/root")]
        assert len(asked) <= 5


async def test_an_owner_added_in_the_last_moment_saves_the_object():
    async with World(GC) as w:
        w.api.make("configmaps", "a/x")
        other = w.api.make("configmaps", "a/y")
        owned(w, "secrets", "a/s", ("configmaps", "a/x"))
        await settle()
        real = w.api._delete

        def racing(kind, namespace, name, options):
            if kind.plural == "secrets":
                w.api._delete = real
                metadata = w.api.kind("secrets")["a/s"]["metadata"]
                more = {"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": other["metadata"]["uid"]}
                references = [*metadata["ownerReferences"], more]
                w.api.change("secrets", "a/s", metadata={**metadata, "ownerReferences": references})
            return real(kind, namespace, name, options)

        w.api.remove("configmaps", "a/x")
        w.api._delete = racing
        await w.clock.advance(5)
        references = w.api.kind("secrets")["a/s"]["metadata"]["ownerReferences"]
        assert [reference["name"] for reference in references] == ["y"]


async def test_two_that_wait_for_each_other_do_not_wait_for_ever():
    async with World(GC) as w:
        first = w.api.make("configmaps", "a/x")
        second = owned(w, "configmaps", "a/y", ("configmaps", "a/x"), block=True)
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "y", "uid": second["metadata"]["uid"]}
        blocking = {**reference, "blockOwnerDeletion": True}
        w.api.change("configmaps", "a/x", metadata={**first["metadata"], "ownerReferences": [blocking]})
        await settle()
        w.api.remove("configmaps", "a/x", propagationPolicy="Foreground")
        await w.clock.advance(30)
        assert not w.api.kind("configmaps")


async def test_events_are_not_followed():
    async with World(GC) as w:
        assert "events" not in {i.resource.plural for i in w.manager._informers.all()}


# --- pod GC -----------------------------------------------------------------------------------------------------------

POD_GC = "pod-garbage-collector-controller"


async def test_finished_pods_above_the_threshold_go_oldest_first():
    async with World(POD_GC, terminated_pods_max=2) as w:
        for number in range(4):
            w.api.make("pods", f"a/p{number}", spec={}, status={"phase": "Succeeded"})
            await w.clock.advance(1)
        w.api.make("pods", "a/alive", spec={}, status={"phase": "Running"})
        await w.clock.advance(21)
        assert set(w.api.kind("pods")) == {"a/p2", "a/p3", "a/alive"}


@pytest.mark.parametrize("started_s", [0.0, 0.1, 420_587.765_074_066])
async def test_pods_of_a_deleted_node_fail_and_go_after_a_quarantine(started_s):
    w = World(POD_GC)
    w.clock.now_s = started_s
    async with w:
        w.api.make("nodes", "there")
        w.api.make("pods", "a/x", spec={"nodeName": "gone"}, status={"phase": "Running"})
        w.api.make("pods", "a/y", spec={"nodeName": "there"}, status={"phase": "Running"})
        await w.clock.advance(59)
        assert "a/x" in w.api.kind("pods"), "missed at 20 s"
        await w.clock.advance(2)
        assert list(w.api.kind("pods")) == ["a/y"]
        last = [r.new for r in w.api.history if r.kind.plural == "pods" and r.new["metadata"]["name"] == "x"][-1]
        assert last["status"]["phase"] == "Failed"
        assert last["status"]["conditions"][0]["reason"] == "DeletionByPodGC"


async def test_a_node_that_comes_back_in_time_keeps_its_pods():
    async with World(POD_GC) as w:
        w.api.make("pods", "a/x", spec={"nodeName": "n"}, status={"phase": "Running"})
        await w.clock.advance(30)
        w.api.make("nodes", "n")
        await w.clock.advance(120)
        assert "a/x" in w.api.kind("pods")


async def test_deleted_pods_without_a_node_and_on_nodes_out_of_service_go():
    async with World(POD_GC) as w:
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        w.api.make("nodes", "dead", spec={"taints": [taint]})
        w.api.make("nodes", "fine")
        for name, node in (("x", "dead"), ("y", "fine"), ("z", None)):
            spec = {"nodeName": node} if node else {}
            w.api.make("pods", f"a/{name}", metadata={"finalizers": []}, spec=spec, status={"phase": "Running"})
            pod = w.api.kind("pods")[f"a/{name}"]
            metadata = {**pod["metadata"], "deletionTimestamp": "t", "deletionGracePeriodSeconds": 30}
            w.api.change("pods", f"a/{name}", metadata=metadata)
        await w.clock.advance(25)
        assert list(w.api.kind("pods")) == ["a/y"]
