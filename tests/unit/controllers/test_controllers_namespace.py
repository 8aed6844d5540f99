"""Namespaces that go, and what each namespace gets."""

from controller_world import World
from step_clock import settle

from minikube_py.api.errors import StatusError

NAME = "namespace-controller"


def conditions(w):
    return {c["type"]: (c["status"], c["reason"]) for c in w.api.kind("namespaces")["a"]["status"]["conditions"]}


async def test_all_content_goes_then_the_namespace():
    async with World(NAME) as w:
        w.api.make("namespaces", "b")
        for plural in ("pods", "services", "configmaps", "secrets", "leases", "replicationcontrollers"):
            w.api.make(plural, "a/x")
            w.api.make(plural, "b/x")
        w.api.remove("namespaces", "a")
        await w.clock.advance(5)
        assert "a" not in w.api.kind("namespaces")
        assert all(not key.startswith("a/") for objects in w.api.objects.values() for key in objects)
        assert "b/x" in w.api.kind("secrets") and "b" in w.api.kind("namespaces")


async def test_pods_go_before_what_they_use():
    async with World(NAME) as w:
        w.api.make("configmaps", "a/x")
        w.api.make("pods", "a/p", spec={"nodeName": "n"}, status={"phase": "Running"})
        w.api.remove("namespaces", "a")
        await w.clock.advance(1)
        assert "a/x" in w.api.kind("configmaps") and "a" in w.api.kind("namespaces")
        w.api.remove("pods", "a/p", gracePeriodSeconds=0)
        await settle()
        assert "a" not in w.api.kind("namespaces"), "the last pod's going is enough, no timer"


async def test_content_with_finalizers_is_waited_for():
    async with World(NAME) as w:
        w.api.make("configmaps", "a/x", metadata={"finalizers": ["example.com/keep"]})
        w.api.make("secrets", "a/y")
        w.api.remove("namespaces", "a")
        await w.clock.advance(1)
        assert conditions(w)["NamespaceContentRemaining"] == ("True", "SomeResourcesRemain")
        assert conditions(w)["NamespaceFinalizersRemaining"] == ("True", "SomeFinalizersRemain")
        assert w.api.kind("secrets") == {}
        w.api.kind("configmaps").clear()
        await w.clock.advance(10)
        assert "a" not in w.api.kind("namespaces")


async def test_another_ones_namespace_finalizer_keeps_it():
    async with World(NAME) as w:
        w.api.change("namespaces", "a", spec={"finalizers": ["kubernetes", "other"]})
        w.api.remove("namespaces", "a")
        await w.clock.advance(5)
        assert w.api.kind("namespaces")["a"]["spec"]["finalizers"] == ["other"]


async def test_a_namespace_deleted_while_nobody_watched():
    w = World(NAME)
    w.api.make("secrets", "a/x")
    w.api.remove("namespaces", "a")
    async with w:
        await w.clock.advance(1)
        assert "a" not in w.api.kind("namespaces")


async def test_a_kind_that_cannot_be_deleted_is_reported_and_tried_again():
    async with World(NAME) as w:
        w.api.make("secrets", "a/x")
        w.api.refuse["DELETE", "/secrets$"] = StatusError(500, "InternalError", "boom")
        w.api.remove("namespaces", "a")
        await w.clock.advance(1)
        assert conditions(w)["NamespaceDeletionContentFailure"] == ("True", "ContentDeletionFailed")
        w.api.refuse.clear()
        await w.clock.advance(60)
        assert "a" not in w.api.kind("namespaces")


async def test_without_deletecollection_each_object_is_deleted():
    async with World(NAME) as w:
        w.api.make("secrets", "a/x")
        w.api.refuse["DELETE", "/secrets$"] = StatusError(405, "MethodNotAllowed", "no deletecollection")
        w.api.remove("namespaces", "a")
        await w.clock.advance(5)
        assert "a" not in w.api.kind("namespaces")


async def test_every_namespace_gets_its_account_and_authority_back():
    names = ("serviceaccount-controller", "root-ca-certificate-publisher-controller")
    async with World(*names, root_ca_pem="PEM") as w:
        w.api.make("namespaces", "b")
        await settle()
        assert set(w.api.kind("serviceaccounts")) == {"a/default", "b/default"}
        assert {k: c["data"] for k, c in w.api.kind("configmaps").items()} == {
            "a/kube-root-ca.crt": {"ca.crt": "PEM"},
            "b/kube-root-ca.crt": {"ca.crt": "PEM"},
        }
        w.api.remove("serviceaccounts", "b/default")
        w.api.remove("configmaps", "a/kube-root-ca.crt")
        w.api.change("configmaps", "b/kube-root-ca.crt", data={"ca.crt": "forged"})
        await w.clock.advance(1)
        assert "b/default" in w.api.kind("serviceaccounts")
        assert {c["data"]["ca.crt"] for c in w.api.kind("configmaps").values()} == {"PEM"}
        assert len(w.api.kind("configmaps")) == 2


async def test_a_terminating_namespace_gets_nothing():
    async with World("serviceaccount-controller") as w:
        w.api.remove("namespaces", "a")
        w.api.remove("serviceaccounts", "a/default")
        await w.clock.advance(5)
        assert w.api.kind("serviceaccounts") == {}


async def test_without_a_certificate_nothing_is_published():
    async with World("root-ca-certificate-publisher-controller") as w:
        await w.clock.advance(1)
        assert w.api.kind("configmaps") == {}
