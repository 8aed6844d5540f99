"""What calls are named, and which parts of the store's API they count as used."""

import pytest

from minikube_py.lab.calls.shapes import all_parts, name_of, range_shape, resource_of, txn_shape, watch_shape
from minikube_py.mvcc.types import FROM_KEY, Compare, DeleteRange, Op, Put, RangeRequest, Txn, prefix_end

POD = b"/registry/pods/ns/a"
PODS = b"/registry/pods/"
UNCHANGED = (Compare(POD, "MOD", "=", 7),)
ABSENT = (Compare(POD, "CREATE", "=", 0),)


@pytest.mark.parametrize(
    ("key", "resource", "name"),
    [
        (POD, "pods", "ns/a"),
        (b"/registry/nodes/n1", "nodes", "n1"),
        (b"/registry/coordination.k8s.io/leases/kube-node-lease/n1", "leases", "kube-node-lease/n1"),
        (b"/registry/", "(no object)", ""),
        (b"\0", "(all keys)", ""),
        (b"/registry/masterleases/1.2.3.4", "masterleases", ""),
        (b"/elsewhere", "/elsewhere", ""),
    ],
)
def test_keys_are_told_by_resource_and_name(key: bytes, resource: str, name: str) -> None:
    assert (resource_of(key), name_of(key)) == (resource, name)


@pytest.mark.parametrize(
    ("request_", "text", "parts"),
    [
        (RangeRequest(POD), "point get", set()),
        (RangeRequest(b"/registry/"), "point get, of the revision alone", set()),
        (RangeRequest(PODS, prefix_end(PODS)), "many keys", {"range_end"}),
        (
            RangeRequest(PODS, prefix_end(PODS), 10, 5),
            "many keys, with limit, at a revision",
            {"range_end", "limit", "revision"},
        ),
        (
            RangeRequest(PODS, prefix_end(PODS), count_only=True),
            "many keys, count only",
            {"range_end", "count_only"},
        ),
        (RangeRequest(POD, fields=("free.cpu",)), "point get of declared fields", {"fields"}),
    ],
)
def test_ranges(request_: RangeRequest, text: str, parts: set[str]) -> None:
    shape = range_shape(request_)
    assert (shape.text, set(shape.parts)) == (text, {f"RangeRequest.{part}" for part in parts})


@pytest.mark.parametrize(
    ("compare", "success", "purpose", "text"),
    [
        (ABSENT, (Put(POD, b"x"),), "", "create"),
        (UNCHANGED, (Put(POD, b"x"),), "", "update"),
        (UNCHANGED, (Put(POD, b"x"),), "bind", "update: bind"),
        (ABSENT, (Put(POD, b"x"),), "bind", "create"),
        (UNCHANGED, (DeleteRange(POD),), "", "delete"),
        ((), (Put(POD, b"x"),), "", "put without a condition"),
        ((Compare(POD, "VALUE", "=", b"v"),), (Put(POD, b"x"),), "", "put under another condition"),
        ((), (RangeRequest(POD),), "", "reads only"),
    ],
)
def test_txns(compare: tuple[Compare, ...], success: tuple[Op, ...], purpose: str, text: str) -> None:
    assert txn_shape(compare, success, (RangeRequest(POD),), purpose).text == text


def test_a_txn_counts_all_its_parts_and_those_within() -> None:
    inner = Txn((Compare(POD, "LEASE", "!=", 0),), (DeleteRange(POD, prev_kv=True),))
    parts = txn_shape(ABSENT, (Put(POD, b"", lease=3), inner), (RangeRequest(POD, keys_only=True),)).parts
    assert set(parts) == {
        "Compare CREATE =",
        "Compare LEASE !=",
        "Txn.success: Put",
        "Txn.success: Txn",
        "Txn.success: DeleteRange",
        "Txn.failure: range",
        "Put.lease",
        "DeleteRange.prev_kv",
        "RangeRequest.keys_only",
    }


def test_watches() -> None:
    assert watch_shape(b"\0", FROM_KEY, 5, False).text == "all keys, from a revision"
    assert watch_shape(PODS, prefix_end(PODS), 0, True).text == "many keys by an index"
    assert watch_shape(POD, b"", 0, False).parts == ()


def test_every_part_that_a_call_can_name_is_among_all_parts() -> None:
    known = {part for group in all_parts().values() for part in group}
    where_used = range_shape(RangeRequest(PODS, prefix_end(PODS), 1, 2, True, True, fields=("a",))).parts
    inner = Txn((Compare(POD, "VERSION", "<", 1, b"z"),), (Put(POD, b"", 1, True, True, True),))
    txn = txn_shape(UNCHANGED, (DeleteRange(POD, b"z", True), inner), (RangeRequest(POD),)).parts
    assert {*where_used, *txn, *watch_shape(PODS, b"z", 1, True).parts} <= known
    assert {"get", "range", "txn", "watch", "lease_grant", "compact", "declare"} <= known
